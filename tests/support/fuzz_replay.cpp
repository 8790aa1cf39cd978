// Replays a fuzzing corpus without libFuzzer: every file of the folders given, once whole and once without
// its last byte. A corpus that is empty or missing fails: a replay of nothing proves nothing.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<char> read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// In a block of exactly its size, so that the address sanitizer sees a read of one byte too many.
void replay(const std::vector<char>& bytes, std::size_t size) {
    const std::vector<std::uint8_t> exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::size_t replay_folder(const std::filesystem::path& folder) {
    std::size_t files = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
        if (!entry.is_regular_file()) continue;
        const std::vector<char> bytes = read_file(entry.path());
        replay(bytes, bytes.size());
        if (!bytes.empty()) replay(bytes, bytes.size() - 1);
        ++files;
    }
    return files;
}

}  // namespace

int main(int argc, char* argv[]) {
    std::size_t files = 0;
    for (int i = 1; i < argc; ++i) files += replay_folder(argv[i]);

    std::printf("replayed %zu files\n", files);
    return files == 0 ? 1 : 0;
}
