// A subcommand's options. In front of CLI11, so that only options.cpp compiles it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nexarctl/command.hpp"

namespace nexarctl {

// `names`: "-n,--count", or "FILE" for a positional one. The targets keep their values when the option is not
// given.
class Options {
  public:
    virtual void flag(const std::string& names, bool& target, const std::string& help) = 0;
    virtual void text(const std::string& names, std::string& target, const std::string& help,
                      bool required = false) = 0;
    // May be given several times.
    virtual void texts(const std::string& names, std::vector<std::string>& target,
                       const std::string& help) = 0;
    virtual void count(const std::string& names, uint64_t& target, uint64_t least, uint64_t most,
                       const std::string& help, bool required = false) = 0;
    // Without a default: nullopt when it is not given.
    virtual void count(const std::string& names, std::optional<uint64_t>& target, uint64_t least,
                       uint64_t most, const std::string& help) = 0;
    virtual void number(const std::string& names, double& target, double least, double most,
                        const std::string& help) = 0;
    // "64M": K, M, G, T by 1024.
    virtual void bytes(const std::string& names, uint64_t& target, const std::string& help) = 0;
    virtual void choice(const std::string& names, std::string& target,
                        const std::vector<std::string>& allowed, const std::string& help) = 0;

  protected:
    ~Options() = default;
};

// Reads the command line, runs one subcommand, returns the exit code.
int parse_and_run(int argc, char** argv, std::span<const Entry> commands);

}  // namespace nexarctl
