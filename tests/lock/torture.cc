// Contenders for one lock, and random events: processes are killed, stopped and continued, the lock
// file is replaced, the lock server is killed, stopped and restarted. A process that is granted the
// lock records that in a history and takes a second lock, the witness, without waiting: two holders
// at once are detected there. Afterwards the history is checked.
//
//   lock_torture flock|replace|lockd|tcp|etcd|k8s [--long | --seconds N] [--seed N]
//
// `replace`: a flock whose file is replaced, under supervisors that notice it. The last three are
// leases of 2 seconds, and no holder is stopped for so long that its lease could expire. --long: an
// hour instead of 20 seconds. Exit status 0: no errors.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/units.h"
#include "etcd/server.h"
#include "http/client.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/process/process.h"
#include "support/ports.h"

namespace {

using namespace fo;
using base::Deadline;
using std::chrono::milliseconds;

constexpr int kContenders = 5;
// Longer than any orphan lives: a server that was down does not notice a holder's death.
constexpr milliseconds kWindow(400);
constexpr int kMaxLife = 150;
constexpr std::string_view kLease = "2s";

const std::set<std::string> kModes{"flock", "replace", "lockd", "tcp", "etcd", "k8s"};

using Random = std::mt19937_64;
int pick(Random& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}

// --- The command under the lock.

void note(int history, const std::string& line) {
  os::write_all(history, line + "\n", "write the history");
}

// Holds the witness for a while, sometimes in a child that outlives this process.
int hold(const std::string& folder) {
  Random random(
      static_cast<std::uint64_t>(::getpid()) ^
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  const char* generation = std::getenv("FAILOVER_GENERATION");
  const char* id = std::getenv("FAILOVER_LOCK_ID");
  const std::string who = std::string(generation == nullptr ? "0" : generation) + " " +
                          (id == nullptr ? "?" : id) + " " + std::to_string(::getpid());
  const base::UniqueFd history = os::open_file(folder + "/history", O_WRONLY | O_APPEND);
  const base::UniqueFd witness = os::open_file(folder + "/witness", O_RDWR);
  if (!os::try_lock_file(witness.get())) {
    note(history.get(), "overlap " + who);
    return 1;
  }
  note(history.get(), "begin " + who);
  if (pick(random, 0, 3) == 0) {
    const pid_t worker = ::fork();
    if (worker == 0) {
      std::this_thread::sleep_for(milliseconds(pick(random, 0, kMaxLife)));
      ::_exit(0);
    }
  }
  std::this_thread::sleep_for(milliseconds(pick(random, 0, kMaxLife)));
  note(history.get(), "end " + who);
  return pick(random, 0, 1);
}

// --- The events.

class Torture {
 public:
  Torture(std::string mode, std::string folder, std::uint64_t seed)
      : mode_(std::move(mode)), folder_(std::move(folder)), random_(seed) {
    for (const char* name : {"/history", "/witness"}) {
      os::open_file(folder_ + name, O_RDWR | O_CREAT);
    }
    if (has_server()) start_server();
    // An etcd that is killed before its first election would never have a leader.
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (mode_ == "etcd" && !test::etcd_is_ready(port_)) {
      if (deadline.expired()) throw base::Error(base::ExitStatus::kTryAgain, "etcd does not start");
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  // Returns false, and prints the errors, if there are any.
  bool run(std::chrono::seconds time) {
    const Deadline end = Deadline::after(time);
    while (!end.expired() && good_) {
      for (int slot = 0; slot < kContenders; ++slot) keep_running(slot);
      strike();
      std::this_thread::sleep_for(milliseconds(pick(random_, 0, 15)));
    }
    calm_down();
    return check_history() && good_;
  }

 private:
  void wrong(const std::string& what) {
    std::printf("wrong: %s\n", what.c_str());
    good_ = false;
  }

  [[nodiscard]] bool has_server() const { return mode_ != "flock" && mode_ != "replace"; }
  [[nodiscard]] bool is_lease() const { return has_server() && mode_ != "lockd"; }

  [[nodiscard]] std::string lock() const {
    const std::string lease(kLease);
    if (mode_ == "lockd") return "unix:" + folder_ + "/lock";
    if (mode_ == "tcp") return "tcp:" + address();
    if (mode_ == "etcd") return "etcd:http://" + address() + "/lock?ttl=" + lease;
    if (mode_ == "k8s") return "k8s:ns/lock?duration=" + lease + "&api=http://" + address();
    return "flock:" + folder_ + "/lock";
  }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  [[nodiscard]] std::vector<std::string> server_command() const {
    const std::string lockd = FO_BUILD_DIR "/bin/gms-lockd";
    if (mode_ == "tcp") {
      return {
          lockd,     "-q",       "--socket",          folder_ + "/lock",    "--listen",
          address(), "--expiry", std::string(kLease), "--reconnect-window", std::string(kLease)};
    }
    if (mode_ == "etcd") return test::etcd_command(folder_ + "/data", port_, peer_port_.number());
    if (mode_ == "k8s") return {FO_SOURCE_DIR "/bats/kube-api"};
    return {lockd,
            "-q",
            "--socket",
            folder_ + "/lock",
            "--reconnect-window",
            base::format_duration(kWindow)};
  }

  void start_server() {
    const std::string said = folder_ + "/server.out";
    const base::UniqueFd out = os::open_file(said, O_WRONLY | O_CREAT | O_TRUNC);
    const base::UniqueFd log =
        os::open_file(folder_ + "/server.log", O_WRONLY | O_CREAT | O_APPEND);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.stdout_fd = out.get();
    options.stderr_fd = log.get();
    server_ = std::make_unique<os::Child>(os::spawn(server_command(), options));
    // It keeps no state, so it is started once, and it chooses its port.
    while (mode_ == "k8s" && test::slurp(said).empty())
      std::this_thread::sleep_for(milliseconds(5));
    if (mode_ == "k8s") port_ = static_cast<std::uint16_t>(std::stoi(test::slurp(said)));
  }

  void disturb_server() {
    static const std::vector<std::string> all{R"("do":"answer","status":500)",
                                              R"("do":"answer","status":409)",
                                              R"("do":"slow","seconds":0.2)",
                                              R"("do":"lost")",
                                              R"("do":"cut")",
                                              R"("do":"expire")"};
    const std::string what = all[static_cast<std::size_t>(pick(random_, 0, 5))];
    http::FetchOptions options;
    options.body =
        R"({"verb":"*","count":)" + std::to_string(pick(random_, 1, 8)) + "," + what + "}";
    options.headers = {{"X-Test", "1"}};
    try {
      http::fetch("POST", "http://" + address() + "/faults", Deadline::after(milliseconds(500)),
                  options);
    } catch (const base::Error&) {  // the server is stopped
    }
    ++server_kills_;
  }

  void keep_running(int slot) {
    auto& process = contenders_[slot];
    if (process) {
      const auto status = process->wait(Deadline::after(base::Duration::zero()));
      if (!status) return;
      // 78: a replaced file's holder runs; 75, 76: lost; others: killed, or the command's.
      static const std::set<int> expected{0, 1, 75, 76, 78, 128 + SIGKILL, 128 + SIGTERM};
      ++statuses_[*status];
      // A wait ended while the server was unreachable.
      const bool is_away = is_lease() && *status == 69;
      if (!expected.contains(*status) && !is_away) {
        wrong("contender ended with status " + std::to_string(*status));
      }
      process.reset();
    }
    std::vector<std::string> argv{FO_BUILD_DIR "/bin/gms-lock",
                                  "acquire",
                                  "-q",
                                  "--lock",
                                  lock(),
                                  "--id",
                                  "c" + std::to_string(slot),
                                  "--grace",
                                  std::to_string(pick(random_, 0, 50)) + "ms"};
    if (mode_ == "flock" && pick(random_, 0, 1) == 0) argv.emplace_back("--exec");
    if (pick(random_, 0, 5) == 0) {
      argv.emplace_back("--timeout");
      argv.push_back(std::to_string(pick(random_, 0, 300)) + "ms");
    }
    for (const std::string& word : {std::string("--"), own_path(), std::string("hold"), folder_}) {
      argv.push_back(word);
    }
    const base::UniqueFd log = os::open_file(folder_ + "/log", O_WRONLY | O_CREAT | O_APPEND);
    os::SpawnOptions options;
    options.stdin_fd = null_.get();
    options.stderr_fd = log.get();
    process = std::make_unique<os::Child>(os::spawn(argv, options));
  }

  static std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

  // The process that was granted the lock last, if it still runs.
  std::optional<pid_t> last_holder() {
    std::ifstream history(folder_ + "/history");
    pid_t last = 0;
    for (std::string line; std::getline(history, line);) {
      std::istringstream words(line);
      std::string what;
      std::string generation;
      std::string id;
      pid_t pid = 0;
      words >> what >> generation >> id >> pid;
      last = what == "begin" ? pid : 0;
    }
    return last > 0 ? std::optional(last) : std::nullopt;
  }

  void stop_for_a_while(pid_t pid) {
    if (auto pidfd = os::open_pidfd(pid); pidfd && os::send_signal(pidfd->get(), SIGSTOP)) {
      stopped_.push_back({std::move(*pidfd), Deadline::after(milliseconds(pick(random_, 0, 300)))});
    }
  }

  void send(pid_t pid, int signal) {
    if (const auto pidfd = os::open_pidfd(pid)) os::send_signal(pidfd->get(), signal);
  }

  void strike() {
    std::erase_if(stopped_, [](const Stopped& stopped) {
      if (!stopped.until.expired()) return false;
      os::send_signal(stopped.pidfd.get(), SIGCONT);
      return true;
    });
    if (server_down_until_ && server_down_until_->expired()) {
      server_down_until_.reset();
      start_server();
    }
    // A dead holder's lease needs time to expire.
    if (is_lease() && pick(random_, 0, 39) != 0) return;
    const int what = pick(random_, 0, 11);
    const auto& contender = contenders_[pick(random_, 0, kContenders - 1)];
    // A killed supervisor can't end its command before another file is locked.
    if (what <= 1 && mode_ != "replace") contender->signal(SIGKILL);
    if (what == 2) contender->signal(SIGTERM);
    if (what == 3) stop_for_a_while(contender->pid());
    if (what == 4 || what == 5) {
      if (const auto holder = last_holder()) {
        what == 4 ? send(*holder, SIGKILL) : stop_for_a_while(*holder);
      }
    }
    if (what == 6 && mode_ == "replace") replace_file();
    // Seldom enough that a dead holder's window ends in between.
    const bool is_time = is_lease() || pick(random_, 0, 9) == 0;
    if (what == 7 && mode_ == "k8s") {
      disturb_server();
    } else if (what == 7 && has_server() && !server_down_until_ && is_time) {
      server_->signal(SIGKILL);
      static_cast<void>(server_->wait(Deadline::never()));
      // Sometimes longer than the window.
      const int most = pick(random_, 0, 3) == 0 ? 800 : 50;
      server_down_until_ = Deadline::after(milliseconds(pick(random_, 0, most)));
      ++server_kills_;
    }
    if (what == 8 && has_server() && !server_down_until_) stop_for_a_while(server_->pid());
  }

  void replace_file() {
    const std::string path = folder_ + "/lock";
    if (pick(random_, 0, 1) == 0) {
      ::unlink(path.c_str());
    } else {
      os::open_file(path + ".new", O_RDWR | O_CREAT);
      ::rename((path + ".new").c_str(), path.c_str());
    }
    ++replacements_;
  }

  // Ends all events; a lock that is not free afterwards is lost for good.
  void calm_down() {
    for (const Stopped& stopped : stopped_) os::send_signal(stopped.pidfd.get(), SIGCONT);
    if (server_down_until_) start_server();
    for (auto& process : contenders_) {
      if (process) process->signal(SIGTERM);
    }
    for (auto& process : contenders_) {
      if (process && !process->wait(Deadline::after(std::chrono::seconds(60)))) {
        wrong("contender " + std::to_string(process->pid()) + " does not end");
        process->signal(SIGKILL);
      }
    }
    const os::Child last = os::spawn({FO_BUILD_DIR "/bin/gms-lock", "acquire", "--lock", lock(),
                                      "--id", "last", "--timeout", "60s", "--", "true"});
    if (const auto status = last.wait(Deadline::never()); status != 0) {
      wrong("the lock could not be had afterwards: status " + std::to_string(*status));
    }
    if (server_) {
      server_->signal(SIGTERM);
      static_cast<void>(server_->wait(Deadline::never()));
    }
  }

  bool check_history() {
    std::ifstream history(folder_ + "/history");
    std::uint64_t last = 0;
    std::size_t grants = 0;
    for (std::string line; std::getline(history, line);) {
      std::istringstream words(line);
      std::string what;
      std::uint64_t generation = 0;
      words >> what >> generation;
      if (what == "overlap") wrong("two holders at once: " + line);
      if (what != "begin") continue;
      ++grants;
      if (generation <= last) {
        wrong("generation after " + std::to_string(last) + ": " + line);
      }
      last = std::max(last, generation);
    }
    std::printf("%s: %zu grants up to generation %llu, %d server faults, %d replacements;",
                mode_.c_str(), grants, static_cast<unsigned long long>(last), server_kills_,
                replacements_);
    for (const auto& [status, count] : statuses_) std::printf(" %d×status %d", count, status);
    std::printf("\n");
    if (grants < 10) wrong("hardly a grant");
    return good_;
  }

  struct Stopped {
    base::UniqueFd pidfd;
    Deadline until;
  };

  std::string mode_;
  std::string folder_;
  Random random_;
  bool good_ = true;
  base::UniqueFd null_ = os::open_file("/dev/null", O_RDWR);
  std::unique_ptr<os::Child> contenders_[kContenders];
  std::unique_ptr<os::Child> server_;
  test::ReservedPort reserved_;
  test::ReservedPort peer_port_;
  // The server's; one that it chooses itself is not reserved.
  std::uint16_t port_ = reserved_.number();
  std::optional<Deadline> server_down_until_;
  std::vector<Stopped> stopped_;
  std::map<int, int> statuses_;
  int server_kills_ = 0;
  int replacements_ = 0;
};

int usage() {
  std::fprintf(stderr,
               "usage: lock_torture flock|replace|lockd|tcp|etcd|k8s [--long | --seconds N] "
               "[--seed N]\n");
  return base::to_int(base::ExitStatus::kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "hold") return hold(words[1]);
    if (words.empty()) return usage();
    if (!kModes.contains(words[0])) return usage();
    std::uint64_t seconds = 10;
    std::uint64_t seed = std::random_device()();
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] == "--long") {
        seconds = 3600;
        continue;
      }
      const auto value = i + 1 < words.size() ? base::parse_uint(words[i + 1]) : std::nullopt;
      if (!value || (words[i] != "--seconds" && words[i] != "--seed")) return usage();
      (words[i] == "--seed" ? seed : seconds) = *value;
      ++i;
    }
    std::string folder = "/tmp/lock-torture.XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) base::throw_errno(errno, "create a folder");
    std::printf("%s: seed %llu, folder %s\n", words[0].c_str(),
                static_cast<unsigned long long>(seed), folder.c_str());
    std::fflush(stdout);
    if (!Torture(words[0], folder, seed).run(std::chrono::seconds(seconds))) return 1;
    std::filesystem::remove_all(folder);
    return 0;
  } catch (const base::Error& error) {
    std::fprintf(stderr, "lock_torture: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
