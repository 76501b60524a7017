#include "draw.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/error.h"
#include "base/unique_fd.h"
#include "os/file/file.h"
#include "os/process/sibling.h"

namespace fo::fo_plan {
namespace {

using base::Error;
using base::ExitStatus;

constexpr std::size_t kMaxSvg = std::size_t{64} << 20;

std::string script_of(const Verb& verb, const Sweep& sweep, const std::vector<Row>& rows) {
  const std::vector<std::string> names = column_names(sweep, rows);
  std::string script = fmt::format(
      "set terminal svg size 800,500 noenhanced background 'white'\nset title '{}'\nset xlabel "
      "'{}'\n"
      "set ylabel '{}'\nset grid\nunset key\n$rows << EOD\n",
      verb.formula, names[0], names[1]);
  for (const Row& row : rows) {
    script += fmt::format("{} {}\n", row.value, row.answer.results.front().value.value());
  }
  return script + "EOD\nplot $rows using 1:2 with linespoints pointtype 7 pointsize 0.3\n";
}

}  // namespace

void draw(const Verb& verb, const Sweep& sweep, const std::vector<Row>& rows,
          const std::string& path) {
  const std::string what = "draw " + base::quoted(path);
  const base::UniqueFd script(::memfd_create("fo-plan", MFD_CLOEXEC));
  if (!script) base::throw_errno(errno, what);
  os::write_all(script.get(), script_of(verb, sweep, rows), what);
  std::optional<os::Captured> drawn;
  try {
    drawn = os::run_captured(
        {"gnuplot", "--default-settings", fmt::format("/proc/{}/fd/{}", ::getpid(), script.get())},
        base::Deadline::after(std::chrono::minutes(1)), -1, kMaxSvg);
  } catch (const Error& error) {
    const bool is_unusable =
        error.status() == ExitStatus::kNotFound || error.status() == ExitStatus::kCannotRun;
    throw Error(is_unusable ? ExitStatus::kUnavailable : error.status(),
                what + ": " + error.what());
  }
  if (!drawn) throw Error(ExitStatus::kTryAgain, what + ": gnuplot did not end in a minute");
  if (drawn->status != 0 || drawn->out.empty()) {
    throw Error(ExitStatus::kUnavailable,
                fmt::format("{}: gnuplot ended with status {}", what, drawn->status));
  }
  os::write_file_atomic(path, drawn->out);
}

}  // namespace fo::fo_plan
