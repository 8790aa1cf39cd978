// nexar_digits: trains a small network on handwritten digits, on all ranks of a nexar group, and checks that
// the result is right. Start it with `nexarctl run -n 4 -- nexar_digits --check-reference`; --help lists the
// rest.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "nexar_peers.hpp"
#include "options.hpp"
#include "report.hpp"

namespace digits {
namespace {

int failed(const std::string& text) {
    std::fprintf(stderr, "nexar_digits (pid %d): %s\n", getpid(), text.c_str());
    return 1;
}

Outcome<std::unique_ptr<Peers>> open_peers(const Options& options) {
    if (options.reference) return std::make_unique<Alone>();
    return open_nexar_peers();
}

TrainOptions train_options(const Options& options, bool show) {
    TrainOptions result;
    result.epochs = options.epochs;
    if (show)
        result.on_epoch = [](uint32_t epoch, double loss) {
            std::printf("epoch %3u            loss %.4f\n", epoch, loss);
            std::fflush(stdout);
        };
    return result;
}

Outcome<bool> run(const Options& options, const Dataset& data, Peers& peers) {
    const bool first = peers.rank() == 0;
    const bool show = first && !options.json;
    if (show)
        std::printf("digits              %zu training images, %zu held out, %zu parameters, %u ranks\n",
                    data.train.size(), data.held_out.size(), parameter_count, peers.ranks());

    auto trained = train(data, peers, train_options(options, show));
    if (!trained) return std::unexpected(trained.error());
    auto hashes = peers.all_gather(hash(trained->parameters));
    if (!hashes) return std::unexpected(hashes.error());

    Report report{.ranks = peers.ranks(),
                  .train_images = data.train.size(),
                  .held_out_images = data.held_out.size(),
                  .trained = &*trained,
                  .accuracy = accuracy(trained->parameters, data.held_out),
                  .hashes = std::move(*hashes),
                  .reference_difference = {}};
    if (!first) return report.passed();

    if (options.check_reference) {
        Alone alone;
        auto reference = train(data, alone, train_options(options, false));
        if (!reference) return std::unexpected(reference.error());
        report.reference_difference = largest_difference(trained->parameters, reference->parameters);
    }
    options.json ? print_json(report) : print_text(report);
    return report.passed();
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
    using namespace digits;
    auto options = parse_options(argc, argv);
    if (!options) return failed(options.error()), 2;
    if (options->help) return std::fputs(usage, stdout), 0;

    auto path = find_data(*options);
    if (!path) return failed(path.error());
    auto data = load_dataset(*path);
    if (!data) return failed(data.error());
    auto peers = open_peers(*options);
    if (!peers) return failed(peers.error());
    auto passed = run(*options, *data, **peers);
    if (!passed) return failed(passed.error());
    return *passed ? 0 : 1;
}
