// Runs a fuzz target without libFuzzer: every file of the folders given, once whole and once without its last
// byte; then mutations of them from a seeded generator, up to a number and a time. A corpus that is empty or
// missing fails: a replay of nothing proves nothing. NEXAR_FUZZ_SEED chooses other mutations. An input that
// aborts the program is left in the file crash-input.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/random.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr std::size_t mutations_max = 50'000;
constexpr std::chrono::milliseconds mutation_time_max{2000};
constexpr std::size_t input_bytes_max = 16 * 1024;

const std::uint8_t* running = nullptr;
std::size_t running_bytes = 0;

void keep_input(int signal) {
    const int fd = open("crash-input", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd >= 0) [[maybe_unused]]
        const auto n = write(fd, running, running_bytes);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

// In a block of exactly its size, so that the address sanitizer sees a read of one byte too many.
void run(const Input& input, std::size_t size) {
    const Input exact(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size));
    running = exact.data();
    running_bytes = exact.size();
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::vector<Input> read_folder(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error))
        if (entry.is_regular_file()) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());  // the same order on every machine
    std::vector<Input> inputs;
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return inputs;
}

// Numbers at which lengths and counts go wrong.
std::uint64_t interesting(nexar::Random& random) {
    constexpr std::uint64_t some[] = {0,
                                      1,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0x7fff,
                                      0xffff,
                                      0x7fffffff,
                                      0xffffffff,
                                      ~std::uint64_t{0},
                                      std::uint64_t{1} << 63,
                                      1u << 18};
    return some[random.below(std::size(some))] + random.below(3) - 1;
}

void mutate_once(nexar::Random& random, Input& input, const Input& other) {
    const std::size_t at = input.empty() ? 0 : random.below(input.size());
    const auto place = [&](const Input& in, std::size_t i) {
        return in.begin() + static_cast<std::ptrdiff_t>(i);
    };
    switch (input.empty() ? 5 : random.below(7)) {
        case 0:
            input[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
            break;
        case 1:
            input[at] = static_cast<std::uint8_t>(random.next());
            break;
        case 2: {
            const std::uint64_t value = interesting(random);
            const std::size_t bytes =
                std::min<std::size_t>(input.size() - at, std::size_t{1} << random.below(4));
            for (std::size_t i = 0; i < bytes; ++i)
                input[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
            break;
        }
        case 3:
            input.erase(place(input, at), place(input, at + 1 + random.below(input.size() - at)));
            break;
        case 4: {
            const Input copy(place(input, at), place(input, at + 1 + random.below(input.size() - at)));
            input.insert(place(input, random.below(input.size())), copy.begin(), copy.end());
            break;
        }
        case 5:
            input.insert(place(input, at), 1 + random.below(8), static_cast<std::uint8_t>(random.next()));
            break;
        default:  // goes on like another seed
            input.resize(at);
            if (!other.empty())
                input.insert(input.end(), place(other, random.below(other.size())), other.end());
    }
    if (input.size() > input_bytes_max) input.resize(input_bytes_max);
}

std::size_t run_mutations(const std::vector<Input>& seeds) {
    const char* chosen = std::getenv("NEXAR_FUZZ_SEED");
    nexar::Random random(chosen ? std::strtoull(chosen, nullptr, 10) : 1);
    const auto end = Clock::now() + mutation_time_max;
    std::size_t n = 0;
    for (; n < mutations_max && Clock::now() < end; ++n) {
        Input input = seeds[random.below(seeds.size())];
        for (std::uint64_t times = 1 + random.below(6); times > 0; --times)
            mutate_once(random, input, seeds[random.below(seeds.size())]);
        run(input, input.size());
    }
    return n;
}

}  // namespace

int main(int argc, char* argv[]) {
    std::signal(SIGABRT, keep_input);
    std::vector<Input> seeds;
    for (int i = 1; i < argc; ++i)
        for (Input& input : read_folder(argv[i])) seeds.push_back(std::move(input));
    for (const Input& seed : seeds) {
        run(seed, seed.size());
        if (!seed.empty()) run(seed, seed.size() - 1);
    }
    if (seeds.empty()) return std::printf("no files\n"), 1;
    std::printf("replayed %zu files, then ", seeds.size());
    std::fflush(stdout);
    std::printf("%zu mutations\n", run_mutations(seeds));
    return 0;
}
