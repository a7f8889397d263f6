// SPDX-License-Identifier: GPL-2.0
#include <linux/ctype.h>
#include <linux/string.h>

#include "folio.h"

int words_cut(struct words *words, char *line)
{
	char *word;

	words->count = 0;
	while ((word = strsep(&line, " \t")) != NULL) {
		if (!*word)
			continue;
		if (words->count == WORDS_MAX)
			return -E2BIG;
		words->word[words->count++] = word;
	}
	return 0;
}

const char *words_plain(const struct words *words, int place)
{
	if (place >= words->count || strchr(words->word[place], '='))
		return NULL;
	return words->word[place];
}

const char *words_option(const struct words *words, const char *key)
{
	size_t len = strlen(key);
	int i;

	for (i = 1; i < words->count; i++)
		if (!strncmp(words->word[i], key, len) && words->word[i][len] == '=')
			return words->word[i] + len + 1;
	return NULL;
}

bool words_has(const struct words *words, const char *word)
{
	int i;

	for (i = 1; i < words->count; i++)
		if (!strcmp(words->word[i], word))
			return true;
	return false;
}

int words_number(const struct words *words, const char *key, u64 least, u64 most, u64 *value)
{
	const char *text = words_option(words, key);
	int err;

	if (!text)
		return -EINVAL;
	err = kstrtou64(text, 10, value);
	if (err)
		return err;
	return *value < least || *value > most ? -ERANGE : 0;
}

int words_cpus(const struct words *words, const char *key, struct cpumask *cpus)
{
	const char *text = words_option(words, key);
	int err;

	if (!text)
		return -EINVAL;
	err = cpulist_parse(text, cpus);
	if (err)
		return err;
	return cpumask_empty(cpus) || !cpumask_subset(cpus, cpu_online_mask) ? -ENXIO : 0;
}

int words_name(const char *from, char *to)
{
	size_t i, len = from ? strlen(from) : 0;

	if (!len || len >= NAME_MAX_LEN)
		return -EINVAL;
	for (i = 0; i < len; i++)
		if (!isalnum(from[i]) && from[i] != '_' && from[i] != '-')
			return -EINVAL;
	strscpy(to, from, NAME_MAX_LEN);
	return 0;
}
