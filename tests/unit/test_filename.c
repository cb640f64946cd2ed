#include "kv/checksum.h"
#include "kv/filename.h"
#include "tests/unit/unit.h"

UNIT(names_are_as_the_format_says)
{
	ck_assert_str_eq(kv_filename(KV_FILE_MANIFEST, 1).s, "000001.manifest");
	ck_assert_str_eq(kv_filename(KV_FILE_JOURNAL, 42).s, "000042.journal");
	ck_assert_str_eq(kv_filename(KV_FILE_TABLE, 999999).s, "999999.sst");
	ck_assert_str_eq(kv_filename(KV_FILE_SEGMENT, 1000000).s, "1000000.vlog");
	ck_assert_str_eq(kv_filename(KV_FILE_MANIFEST, UINT64_MAX).s,
			 "18446744073709551615.manifest");
}
UNIT_END

UNIT(names_round_trip)
{
	static const kv_fileno numbers[] = { 1, 9, 10, 999999, 1000000, 123456789, UINT64_MAX };

	for (enum kv_file_kind kind = KV_FILE_MANIFEST; kind <= KV_FILE_SEGMENT; kind++)
		for (size_t i = 0; i < KV_ARRAY_LEN(numbers); i++) {
			enum kv_file_kind got_kind = 0;
			kv_fileno got = 0;

			ck_assert(kv_filename_parse(kv_filename(kind, numbers[i]).s, &got_kind, &got));
			ck_assert_int_eq(got_kind, kind);
			ck_assert_uint_eq(got, numbers[i]);
		}
}
UNIT_END

UNIT(other_names_are_refused)
{
	static const char *const names[] = {
		"", "CURRENT", "CURRENT.new", "LOCK", "000001", "000001.", "000001.SST",
		"00001.sst", "0000001.sst", "000000.sst", "000001.sst.bak", "a00001.sst",
		"-00001.sst", "+00001.sst", " 00001.sst", "000001 .sst", "0x0001.sst",
		"18446744073709551616.sst", "99999999999999999999999.sst", ".sst", "000001.log",
	};

	for (size_t i = 0; i < KV_ARRAY_LEN(names); i++) {
		enum kv_file_kind kind = 77;
		kv_fileno number = 77;

		ck_assert_msg(!kv_filename_parse(names[i], &kind, &number), "%s", names[i]);
		ck_assert_int_eq(kind, 77);
		ck_assert_uint_eq(number, 77);
	}
}
UNIT_END

/* However the bytes are divided, and on both sides of the gathering bound. */
UNIT(checksums_do_not_depend_on_the_parts)
{
	static uint8_t b[1000];

	for (size_t i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)(i * 7 + i / 256);
	for (size_t bytes = 0; bytes <= sizeof(b); bytes += bytes < 300 ? 1 : 50) {
		uint64_t whole = kv_checksum(kv_slice(b, bytes), 5);

		ck_assert_uint_ne(whole, kv_checksum(kv_slice(b, bytes), 6));
		for (size_t cut = 0; cut <= bytes; cut += 13) {
			size_t half = (bytes - cut) / 2;
			struct iovec parts[] = { { b + cut, half },
						 { NULL, 0 },
						 { b + cut + half, bytes - cut - half } };

			ck_assert_uint_eq(whole, kv_checksum2(kv_slice(b, cut),
							      kv_slice(b + cut, bytes - cut), 5));
			ck_assert_uint_eq(whole, kv_checksum_iov(kv_slice(b, cut), parts, 3, 5));
		}
	}
}
UNIT_END

UNIT_MAIN("filename", names_are_as_the_format_says, names_round_trip, other_names_are_refused,
	  checksums_do_not_depend_on_the_parts)
