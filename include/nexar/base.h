/* nexar/base.h - the platform, the version, time-outs. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_BASE_H
#define NEXAR_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(UINTPTR_MAX) && UINTPTR_MAX != UINT64_MAX
#error "nexar is for 64-bit machines"
#endif

/* With the linkage in NEXAR_API, no part needs a block for C++. */
#ifdef __cplusplus
#define NEXAR_LINKAGE extern "C"
#else
#define NEXAR_LINKAGE
#endif

#if defined(__GNUC__)
#define NEXAR_API NEXAR_LINKAGE __attribute__((visibility("default")))
#define NEXAR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define NEXAR_API NEXAR_LINKAGE
#define NEXAR_MUST_CHECK
#endif

/* ==== Version ====
 * The rule: until 1.0 each 0.N is an ABI of its own (SONAME libnexar_c.so.0.N, CMake and pkg-config accept 0.N.*);
 * from 1.0 on the major number is (SONAME libnexar_c.so.N). Within one ABI things are only added. */

#define NEXAR_VERSION_MAJOR 0
#define NEXAR_VERSION_MINOR 2
#define NEXAR_VERSION_PATCH 0
/* Of the library that is loaded: major << 16 | minor << 8 | patch, and the same as "0.2.0". */
NEXAR_API uint32_t nexar_version(void);
NEXAR_API const char* nexar_version_text(void);

/* ==== Time-outs ==== */

/* For an operation: the group's time-out for its kind; for a wait: without a limit; for an option: its documented
 * default. */
#define NEXAR_TIMEOUT_DEFAULT INT64_C(-1)
/* No deadline. (In configuration files and environment variables, which count in seconds, this is 0.) */
#define NEXAR_TIMEOUT_NONE INT64_C(-2)

#endif
