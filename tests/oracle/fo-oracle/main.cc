// fo-oracle: a stand-in for an inference engine whose right answers are known.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "loop/daemon.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "options.h"
#include "oracle/engine.h"

namespace {

namespace asio = boost::asio;
using fo::oracle::Fault;
using fo::oracle_tool::Options;

constexpr auto kDrainTime = std::chrono::seconds(5);

void end_process(Fault::Kind kind) {
  if (kind == Fault::Kind::kKill) ::kill(::getpid(), SIGKILL);
  std::_Exit(fo::base::to_int(fo::base::ExitStatus::kSoftware));
}

asio::awaitable<void> drain(fo::oracle::Engine& engine, asio::io_context& loop) {
  const fo::base::Deadline deadline = fo::base::Deadline::after(kDrainTime);
  co_await engine.stop(deadline);
  loop.stop();
}

int serve(Options& options, const fo::cli::CommonOptions& common) {
  fo::loop::Daemon daemon;
  asio::io_context loop(1);
  const auto rethrow = [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  };
  options.engine.version = FO_VERSION;
  options.engine.end_process = end_process;
  fo::oracle::Engine engine(loop.get_executor(), options.engine);
  const auto stop = [&](fo::loop::Stop how) {
    if (how == fo::loop::Stop::kNow) return loop.stop();
    fo::loop::spawn(loop, drain(engine, loop), rethrow);
  };
  fo::loop::spawn(loop, daemon.run(stop), rethrow);
  fo::net::Address address{options.host, options.port};
  address.port = engine.listen(fo::net::to_string(address));
  const std::string text = fo::net::to_string(address);
  fo::cli::print_line(
      common.json ? fmt::format(R"({{"ready":true,"address":"{}","port":{}}})", text, address.port)
                  : "ready " + text);
  daemon.ready();
  loop.run();
  return fo::base::to_int(fo::base::ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  fo::cli::CommonOptions common;
  Options options;
  const fo::cli::Tool tool{.name = "fo-oracle",
                           .summary =
                               "A stand-in for an inference engine, whose right answers are "
                               "known, to rehearse faults with",
                           .version = FO_VERSION,
                           .is_daemon = true};
  return fo::cli::run(
      argc, argv, tool, common, [&](CLI::App& app) { fo::oracle_tool::declare(app, options); },
      [&] { return serve(options, common); });
}
