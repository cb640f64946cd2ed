/*
 * What every unit test shares: one table of tests makes the program.
 *
 *	UNIT(reserve_keeps_content) { ck_assert_int_eq(...); }
 *	UNIT_MAIN("buf", reserve_keeps_content)
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <check.h>
#include <stdlib.h>

#define UNIT(name) START_TEST(name)
#define UNIT_END END_TEST

/* All tests of a noun, run in one process each (fork), 120 s at the most. */
#define UNIT_MAIN(noun, ...)                                              \
	int main(void)                                                    \
	{                                                                 \
		const TTest *tests[] = { __VA_ARGS__ };                   \
		Suite *suite = suite_create(noun);                        \
		TCase *tcase = tcase_create(noun);                        \
		SRunner *runner;                                          \
		int failed;                                               \
                                                                          \
		tcase_set_timeout(tcase, 120);                            \
		for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) \
			tcase_add_test(tcase, tests[i]);                  \
		suite_add_tcase(suite, tcase);                            \
		runner = srunner_create(suite);                           \
		srunner_run_all(runner, CK_ENV);                          \
		failed = srunner_ntests_failed(runner);                   \
		srunner_free(runner);                                     \
		return failed ? EXIT_FAILURE : EXIT_SUCCESS;              \
	}

#define ck_ok(expr) ck_assert_int_eq(expr, 0)

#endif
