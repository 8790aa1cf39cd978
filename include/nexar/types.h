/* nexar/types.h - element types and reductions. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_TYPES_H
#define NEXAR_TYPES_H

#include "status.h"

/* ==== Element types and reductions ====
 * avg is the sum divided once by the number of ranks. Floats below 32 bits are combined as f32 and rounded to their
 * type, to nearest even, once per combination; f8e4m3fn (E4M3 of OCP OFP8 1.0) has no infinity: what passes its
 * largest number is NaN. min and max give NaN if there is one, and order -0 before +0. Sums and products of integers
 * wrap as their type, also inside avg: its sum must fit; its division is towards zero. Logical operators, and all of
 * bool, take anything but 0 for true and give 0 or 1. premul_sum sums each rank's values times that rank's own scalar
 * (nexar_op_options), each product rounded to the type. minloc and maxloc are of pairs (a struct of value and index):
 * the least (greatest) value with its index; at equal values, as -0 and +0 are, the lowest index; a NaN is before all
 * numbers. A group of one rank gets its values as they are, but for premul_sum and logical operators.
 * Floats: sum prod min max avg premul_sum. Integers: these, band bor bxor land lor lxor. bool: min max band bor bxor
 * land lor lxor. Pairs: minloc maxloc. Another reduction of a type is INVALID_ARGUMENT. */

typedef int32_t nexar_dtype;
enum {
    NEXAR_F32 = 0,
    NEXAR_F64 = 1,
    NEXAR_F16 = 2,
    NEXAR_BF16 = 3,
    NEXAR_I8 = 4,
    NEXAR_I32 = 5,
    NEXAR_I64 = 6,
    NEXAR_U8 = 7,
    NEXAR_U32 = 8,
    NEXAR_U64 = 9,
    NEXAR_I16 = 10,
    NEXAR_U16 = 11,
    NEXAR_BOOL = 12,     /* 1 byte */
    NEXAR_F8E4M3FN = 13,
    NEXAR_F8E5M2 = 14,
    NEXAR_F32_I32 = 15,  /* pairs: aligned as their value */
    NEXAR_F64_I64 = 16,
    NEXAR_I32_I32 = 17,
    NEXAR_I64_I64 = 18
};

typedef int32_t nexar_reduce_op;
enum {
    NEXAR_SUM = 0,
    NEXAR_PROD = 1,
    NEXAR_MIN = 2,
    NEXAR_MAX = 3,
    NEXAR_AVG = 4,
    NEXAR_BAND = 5,
    NEXAR_BOR = 6,
    NEXAR_BXOR = 7,
    NEXAR_LAND = 8,
    NEXAR_LOR = 9,
    NEXAR_LXOR = 10,
    NEXAR_MINLOC = 11,
    NEXAR_MAXLOC = 12,
    NEXAR_PREMUL_SUM = 13
};
/* Complex types and reductions of your own are not supported (what is not listed is INVALID_ARGUMENT). Instead:
 *   complex    SUM, AVG, and all that only moves: as twice as many F32 or F64. A product is one of your own
 *   your own   nexar_all_gather, then combine the blocks in rank order: the same bits on all ranks. Of long data first
 *              nexar_all_to_all, so that each rank combines its block of all, then nexar_all_gather of the results */

NEXAR_API uint64_t nexar_dtype_size(nexar_dtype dtype); /* bytes; 0: no such type */
NEXAR_API const char* nexar_dtype_name(nexar_dtype dtype);
NEXAR_API const char* nexar_reduce_op_name(nexar_reduce_op op);

/* Rank's share of `count` elements, in rank order: the first count % size ranks have one more. As counts of
 * nexar_reduce_scatterv and nexar_all_gatherv it cuts the parameters of a sharded optimiser.
 *   INVALID_ARGUMENT   NULL; size is 0 or above NEXAR_RANKS_MAX; rank >= size. Nothing is written then */
NEXAR_API nexar_status nexar_shard(uint64_t count, uint32_t size, uint32_t rank, uint64_t* offset, uint64_t* length);

#endif
