// The report, for people and for programs.
#include "report.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <string>

namespace digits {
namespace {

const char* yes_no(bool value) {
    return value ? "yes" : "NO";
}
const char* json_bool(bool value) {
    return value ? "true" : "false";
}

// JSON has no NaN and no infinity.
std::string json_number(const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return std::isfinite(value) ? text : "null";
}

}  // namespace

bool Report::identical() const {
    return std::ranges::all_of(hashes, [this](uint64_t hash) { return hash == hashes.front(); });
}

void print_text(const Report& report) {
    const AllReduceStats& calls = report.trained->all_reduce;
    std::printf("held-out accuracy   %.2f %% of %zu images; at least %.0f %%: %s\n", 100 * report.accuracy,
                report.held_out_images, 100 * accuracy_wanted, yes_no(report.accurate()));
    std::printf("parameters          hash %016" PRIx64 ", bit-identical on all %u ranks: %s\n",
                report.hashes.front(), report.ranks, yes_no(report.identical()));
    if (!report.identical())
        for (size_t rank = 0; rank < report.hashes.size(); ++rank)
            std::printf("    rank %-3zu        hash %016" PRIx64 "\n", rank, report.hashes[rank]);
    if (report.reference_difference)
        std::printf("single process      largest difference of a parameter %.1e, tolerance %.0e: %s\n",
                    *report.reference_difference, reference_tolerance, yes_no(report.near_reference()));
    if (report.ranks > 1)
        std::printf("all_reduce          %" PRIu64
                    " calls, %.1f MB in %.3f s of %.3f s: %.3f GB/s\n"
                    "                    (vector bytes / time in the calls, which includes waiting for "
                    "slower ranks)\n",
                    calls.calls, static_cast<double>(calls.bytes) / 1e6, calls.seconds,
                    report.trained->seconds, calls.gigabytes_per_second());
    std::printf("result              %s\n", report.passed() ? "passed" : "FAILED");
}

void print_json(const Report& report) {
    const AllReduceStats& calls = report.trained->all_reduce;
    std::printf("{\"ranks\": %u, \"train_images\": %zu, \"held_out_images\": %zu, \"loss\": [", report.ranks,
                report.train_images, report.held_out_images);
    for (const char* comma = ""; double loss : report.trained->loss) {
        std::printf("%s%s", comma, json_number("%.6f", loss).c_str());
        comma = ", ";
    }
    std::printf("], \"accuracy\": %.6f, \"parameters_hash\": \"%016" PRIx64 "\", \"identical\": %s, ",
                report.accuracy, report.hashes.front(), json_bool(report.identical()));
    if (report.reference_difference)
        std::printf("\"reference_difference\": %s, \"reference_tolerance\": %.0e, ",
                    json_number("%.3e", *report.reference_difference).c_str(), reference_tolerance);
    std::printf("\"seconds\": %.6f, \"all_reduce\": {\"calls\": %" PRIu64 ", \"bytes\": %" PRIu64
                ", \"seconds\": %.6f, \"gigabytes_per_second\": %.6f}, \"passed\": %s}\n",
                report.trained->seconds, calls.calls, calls.bytes, calls.seconds,
                calls.gigabytes_per_second(), json_bool(report.passed()));
}

}  // namespace digits
