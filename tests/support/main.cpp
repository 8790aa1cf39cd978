// The main function of every unit test, compiled once. Test files include the small Catch2 headers only.
#include <catch2/catch_session.hpp>

int main(int argc, char* argv[]) {
    return Catch::Session().run(argc, argv);
}
