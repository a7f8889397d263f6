/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How long does a request take that meets no other at its device?
 *
 * It is the time that such requests were there, until they were done or another came, divided by the number of those that were done
 * meanwhile. The mean of the latter would be too small: long ones are seldom left alone. The value is exact for exponentially distributed
 * times, too large for equal ones, too small for some short and some long. No BPF helper is called here: the tests compile it for the host,
 * too.
 */
#pragma once

struct blkio_load {
	unsigned int now;	   /* requests that are there */
	unsigned int issued;	   /* since we look */
	unsigned long long joined; /* when another request came to the one that had found none; 0: none has */
};

/* A request comes at `now`, and finds `ahead` others there. Returns its number: of two at once none is alone. */
static inline unsigned int comes(struct blkio_load *load, unsigned int ahead, unsigned long long now)
{
	unsigned int number = load->issued + 1;

	__sync_fetch_and_add(&load->issued, 1);
	if (!ahead)
		load->joined = 0;
	else if (!load->joined)
		load->joined = now;
	return number;
}

/* Until when the request was alone that had found no other; it is done at `now`. */
static inline unsigned long long alone_until(const struct blkio_load *load, unsigned int number, unsigned long long now)
{
	return load->issued == number ? now : load->joined;
}
