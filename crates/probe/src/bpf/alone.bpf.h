/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How long a request takes that meets no other at its device.
 *
 * It is the time that such ones were there, until they were done or another came, by the number of those that were done
 * meanwhile. The mean of the latter would be too little: long ones are seldom left alone. Exact for times without memory,
 * more for equal ones, less for some short and some long. No helper of BPF is called here: the tests compile it for the host, too.
 */
#pragma once

struct blkio_load {
	unsigned int now;	   /* requests that are there */
	unsigned int issued;	   /* since we look */
	unsigned long long joined; /* when another came to the one that had found none; 0: none has */
};

/* A request comes at `now`, and finds `ahead` others there. Its number: of two at once none is alone. */
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

/* Until when that one was alone which had found no other; `now` it is done. */
static inline unsigned long long alone_until(const struct blkio_load *load, unsigned int number, unsigned long long now)
{
	return load->issued == number ? now : load->joined;
}
