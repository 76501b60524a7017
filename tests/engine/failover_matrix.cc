// The failover matrix: a real pair, and every event that can happen to each of its processes in
// each state. After each event: exactly one active engine, the same tokens, no lost memory or
// processes, and the victim back in standby; or, if nothing can serve, the exit status that
// fo-shadow(1) documents.
//
//   failover_matrix [--engine refengine|vllm] [--long | --seconds N] [--seed N]
//                   [--lock flock|lockd] [--only NAME]
//
// The engine is fo-refengine, or the stand-in for vLLM with Dynamo's GMS worker; its rank is vLLM's
// engine core. Without --long or --seconds, each cell is run once; without --lock, cells that do
// not depend on the kind of lock run on one kind only. --long runs random moves until 1,000
// failovers, some on both engines, with switchovers in between, on each kind of lock in turn unless
// one is named. Exit status 0: no errors.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/pair_process.h"
#include "lock/lock_status.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"

namespace {

using namespace fo;
using base::Deadline;
using base::Error;
using std::chrono::milliseconds;
using test::Pair;
using test::wait_until;

// Time for an engine to take over, or for a pair to be complete again.
constexpr base::Duration kBound = std::chrono::seconds(15);
constexpr std::size_t kLongFailovers = 1000;
// Time for a whole move, including its bounds, or for the start of a pair.
constexpr std::chrono::seconds kMoveLimit(120);
constexpr int kMaxDelay = 50;

using Random = std::mt19937_64;
int pick(Random& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}

// --- The rows and the columns.

enum class Who { kEngine, kRank, kShadow, kGms, kGmsServer, kLockd, kDevice, kSocket, kNobody };
enum class When { kInit, kStandby, kWaking, kActive };
enum class Hit {
  kKill,
  kTerm,
  kAbort,
  kStop,
  // A memory or lock server does not return in time, or returns without the weights.
  kAway,
  kEmpty,
  // A lock server is replaced while the holder is stopped.
  kBehind,
  // The device is full for a while, for too long, or out of memory at the wake.
  kFull,
  kFullForLong,
  kRefuses,
  // The socket or file of the GMS, of the status or of the lock is removed; a client's connection
  // is closed.
  kGms,
  kStatus,
  kLock,
  kClient,
  // No victim: the active engine hands over.
  kSwitchover,
};

struct Cell {
  Who who;
  When when;
  Hit hit;
};

std::string name_of(const Cell& cell) {
  static const std::map<Who, std::string> kWho{
      {Who::kEngine, "engine"},        {Who::kRank, "rank"},
      {Who::kShadow, "shadow"},        {Who::kGms, "gms"},
      {Who::kGmsServer, "gms-server"}, {Who::kLockd, "lockd"},
      {Who::kDevice, "device"},        {Who::kSocket, "socket"},
      {Who::kNobody, "nobody"}};
  static const std::map<When, std::string> kWhen{{When::kInit, "init"},
                                                 {When::kStandby, "standby"},
                                                 {When::kWaking, "waking"},
                                                 {When::kActive, "active"}};
  static const std::map<Hit, std::string> kHit{
      {Hit::kKill, "KILL"},       {Hit::kTerm, "TERM"},     {Hit::kAbort, "ABRT"},
      {Hit::kStop, "STOP"},       {Hit::kAway, "away"},     {Hit::kEmpty, "empty"},
      {Hit::kBehind, "behind"},   {Hit::kFull, "full"},     {Hit::kFullForLong, "full-for-long"},
      {Hit::kRefuses, "refuses"}, {Hit::kGms, "gms"},       {Hit::kStatus, "status"},
      {Hit::kLock, "lock"},       {Hit::kClient, "client"}, {Hit::kSwitchover, "switchover"}};
  return kWho.at(cell.who) + " " + kWhen.at(cell.when) + " " + kHit.at(cell.hit);
}

// The kind of lock and of engine.
struct Setting {
  bool lockd = false;
  bool vllm = false;
};

std::vector<Cell> all_cells(const Setting& setting) {
  std::vector<Cell> cells;
  const auto add = [&](Who who, std::initializer_list<When> whens,
                       std::initializer_list<Hit> hits) {
    for (const When when : whens) {
      for (const Hit hit : hits) cells.push_back({who, when, hit});
    }
  };
  for (const Who who : {Who::kEngine, Who::kRank, Who::kShadow}) {
    add(who, {When::kActive, When::kStandby, When::kWaking, When::kInit},
        {Hit::kKill, Hit::kTerm, Hit::kAbort, Hit::kStop});
  }
  add(Who::kGms, {When::kActive},
      {Hit::kKill, Hit::kTerm, Hit::kAbort, Hit::kStop, Hit::kAway, Hit::kEmpty});
  add(Who::kGmsServer, {When::kActive}, {Hit::kKill, Hit::kTerm, Hit::kAbort, Hit::kStop});
  if (setting.lockd) {
    add(Who::kLockd, {When::kActive},
        {Hit::kKill, Hit::kTerm, Hit::kAbort, Hit::kStop, Hit::kAway, Hit::kBehind});
  }
  add(Who::kDevice, {When::kWaking}, {Hit::kFull, Hit::kFullForLong});
  // The GMS creates vLLM's memory, and retries for a minute.
  if (!setting.vllm) add(Who::kDevice, {When::kWaking}, {Hit::kRefuses});
  add(Who::kSocket, {When::kActive}, {Hit::kGms, Hit::kStatus, Hit::kLock, Hit::kClient});
  add(Who::kSocket, {When::kInit}, {Hit::kStatus});
  add(Who::kNobody, {When::kActive}, {Hit::kSwitchover});
  return cells;
}

// Whether the result may depend on the kind of lock.
bool concerns_lock(const Cell& cell) {
  switch (cell.who) {
    case Who::kEngine:
    case Who::kRank:
      return cell.hit != Hit::kStop;
    case Who::kShadow:
    case Who::kLockd:
    case Who::kNobody:
      return true;
    case Who::kSocket:
      return cell.hit == Hit::kLock;
    default:
      return false;
  }
}

int signal_of(Hit hit) {
  switch (hit) {
    case Hit::kTerm:
      return SIGTERM;
    case Hit::kAbort:
      return SIGABRT;
    case Hit::kStop:
      return SIGSTOP;
    default:
      return SIGKILL;
  }
}

// The exit statuses of fo-shadow after this event, to it or to its engine.
std::set<int> statuses_of(const Cell& cell, const Setting& setting) {
  if (cell.hit == Hit::kStop) {
    // An engine that does not answer: at its start, at its wake, while it serves. The signal may
    // reach a process of a waking engine when that process has done its part of the wake.
    if (cell.when == When::kActive) return {69};
    if (cell.when == When::kWaking) return {69, 75};
    return {75};
  }
  if (cell.who == Who::kRank) return {setting.vllm ? 1 : 70};
  // At its start an engine may not have a signal handler yet.
  if (cell.hit == Hit::kTerm && cell.when == When::kInit) return {0, 128 + SIGTERM};
  if (cell.hit == Hit::kTerm) return {0};
  return {128 + signal_of(cell.hit)};
}

std::string to_text(const std::set<int>& statuses) {
  std::string text;
  for (const int status : statuses) text += (text.empty() ? "" : " or ") + std::to_string(status);
  return text;
}

// --- Never two at once.

// Queries both engines all the time, on its own thread. If two consecutive answers of one engine
// are the same, and the other answered in between, both states existed at the same time.
class Sampler {
 public:
  Sampler(const Pair& pair, const Setting& setting)
      : pair_(pair), setting_(setting), thread_([this] { look(); }) {}
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler() {
    stopping_ = true;
    thread_.join();
  }

  /// Returns the violation that was seen, once.
  std::string take() {
    const std::lock_guard guard(mutex_);
    return std::exchange(seen_, {});
  }
  /// How many times both engines answered.
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  struct Sight {
    bool answered = false;
    bool has_lock = false;
    bool awake = false;
    std::uint64_t generation = 0;
  };

  Sight look_at(int engine) const {
    constexpr base::Duration kLimit = milliseconds(100);
    Sight sight;
    if (const auto status = pair_.status(engine, kLimit)) {
      sight.answered = true;
      sight.has_lock = status->state == "waking" || status->state == "active";
      sight.generation = status->generation;
    }
    // vLLM is awake when it starts, with scratch memory as its KV cache; the stand-in itself
    // reports that two serve.
    if (!setting_.vllm) sight.awake = pair_.is_awake(engine, kLimit).value_or(false);
    return sight;
  }

  void look() {
    Sight before = look_at(0);
    auto since = Deadline::Clock::now();
    while (!stopping_) {
      const Sight other = look_at(1);
      const Sight after = look_at(0);
      const bool same = before.generation == after.generation;
      if (same && before.has_lock && after.has_lock && other.has_lock) {
        note("both have the lock: generations " + std::to_string(after.generation) + " and " +
             std::to_string(other.generation));
      }
      // Too short for two wakes with one of the other engine in between.
      const auto now = Deadline::Clock::now();
      if (now - since < milliseconds(50) && before.awake && other.awake && after.awake) {
        note("both are awake");
      }
      before = after;
      since = now;
      if (other.answered && after.answered) ++count_;
      std::this_thread::sleep_for(milliseconds(3));
    }
  }

  void note(const std::string& what) {
    const std::lock_guard guard(mutex_);
    seen_ = what;
  }

  const Pair& pair_;
  Setting setting_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> count_ = 0;
  std::mutex mutex_;
  std::string seen_;
  std::thread thread_;
};

// --- The moves.

[[noreturn]] void wrong(const std::string& what) { throw Error(base::ExitStatus::kSoftware, what); }

class Matrix {
 public:
  Matrix(const Setting& setting, std::uint64_t seed)
      : setting_(setting), pair_({.lockd = setting.lockd, .vllm = setting.vllm}), random_(seed) {
    // Core dumps are written there.
    std::filesystem::current_path(pair_.file(""));
    pair_.start_gms();
    pair_.load();
    pair_.start(0);
    pair_.start(1);
    settle();
    tokens_ = pair_.tokens();
    if (tokens_.empty()) wrong("no tokens from the first engine");
    memory_ = pair_.free_memory();
    sampler_ = std::make_unique<Sampler>(pair_, setting_);
  }

  /// Runs one cell and completes the pair again. Prints errors.
  bool play(const Cell& cell) {
    return try_move(name_of(cell), [&] { strike_and_look(cell); });
  }

  /// The same for one random move of a long run.
  bool play_at_random(const std::vector<Cell>& cells) {
    delay_ = milliseconds(pick(random_, 0, kMaxDelay));
    switch (pick(random_, 0, 9)) {
      case 0:
        return play({Who::kNobody, When::kActive, Hit::kSwitchover});
      case 1:
        return strike_in_switchover();
      case 2:
      case 3:
        return strike_twice();
      default:
        return play(cells.at(
            static_cast<std::size_t>(pick(random_, 0, static_cast<int>(cells.size()) - 1))));
    }
  }

  /// The number of grants of the lock, to either engine.
  [[nodiscard]] std::size_t grants() const { return pair_.generations().size(); }
  /// The number of the sampler's queries.
  [[nodiscard]] std::uint64_t looks() const { return sampler_ ? sampler_->count() : looks_; }

  /// Prints the errors at the end.
  bool finish() {
    looks_ = sampler_->count();
    sampler_.reset();
    const std::vector<std::string> found = pair_.finish();
    for (const std::string& what : found) std::printf("wrong: at the end: %s\n", what.c_str());
    return found.empty();
  }

 private:
  // --- Events.

  bool try_move(const std::string& name, const std::function<void()>& move) {
    try {
      active_ = pair_.active().value();
      before_ = pair_.status(active_)->generation;
      move();
      settle();
      return true;
    } catch (const std::exception& error) {
      std::printf("wrong: %s: %s\n", name.c_str(), error.what());
      std::fflush(stdout);
      std::fprintf(stderr, "%s", pair_.logs().c_str());
    }
    return false;
  }

  void strike_and_look(const Cell& cell) {
    switch (cell.who) {
      case Who::kEngine:
      case Who::kRank:
      case Who::kShadow:
        return strike_engine(cell);
      case Who::kGms:
      case Who::kGmsServer:
        return strike_gms(cell);
      case Who::kLockd:
        return strike_lockd(cell);
      case Who::kDevice:
        return fill_device(cell);
      case Who::kSocket:
        return cut_socket(cell);
      case Who::kNobody:
        return switch_over();
    }
  }

  void strike_engine(const Cell& cell) {
    const int victim = cell.when == When::kActive ? active_ : 1 - active_;
    bring_to(victim, cell);
    const pid_t pid = find(victim, cell.who);
    std::this_thread::sleep_for(delay_);
    send(pid, signal_of(cell.hit));
    if (cell.hit == Hit::kTerm && cell.who == Who::kRank && !setting_.vllm) {
      // The engine decides when its ranks end; a rank that was just forked does not know that yet.
      if (cell.when != When::kInit) return outlive(victim, pid, cell);
      if (const auto pidfd = os::open_pidfd(pid)) os::send_signal(pidfd->get(), SIGKILL);
    }
    if (cell.hit == Hit::kStop && cell.who == Who::kShadow) return outlive(victim, pid, cell);
    if (cell.hit == Hit::kStop && cell.when == When::kStandby) {
      // The engine is not needed yet; later it does not wake.
      check_unchanged();
      send(find(active_, Who::kEngine), SIGKILL);
      expect_end(active_, {137});
      return expect_end(victim, {69, 75});
    }
    expect_end(victim, statuses_of(cell, setting_));
    look_after(victim, cell.when);
  }

  // Checks the pair after the end of the victim.
  void look_after(int victim, When when) {
    if (when == When::kActive) return expect_active(1 - victim);
    if (when != When::kWaking) check_unchanged();
  }

  // A stopped fo-shadow only delays its engine, and a rank ignores SIGTERM. Then the victim is
  // killed.
  void outlive(int victim, pid_t pid, const Cell& cell) {
    const bool speaks = cell.when != When::kActive || cell.hit != Hit::kStop;
    if (!speaks && pair_.is_awake(victim) != true) wrong("its engine sleeps");
    if (!speaks && pair_.state(1 - victim) != "standby") wrong("the other engine took over");
    if (speaks && cell.when != When::kWaking) check_unchanged();
    send(pid, SIGCONT);
    if (cell.when == When::kWaking) {
      expect_active(victim);
    } else {
      check_unchanged();
    }
    send(pid, SIGKILL);
    const Cell killed{cell.who, cell.when, Hit::kKill};
    expect_end(victim, statuses_of(killed, setting_));
    if (cell.when != When::kWaking) look_after(victim, cell.when);
  }

  void strike_gms(const Cell& cell) {
    const pid_t gms = pair_.gms().pid();
    const pid_t pid = cell.who == Who::kGms ? gms : pair_.weights_server().value();
    std::this_thread::sleep_for(delay_);
    send(pid, signal_of(cell.hit));
    const bool comes_back =
        cell.who == Who::kGmsServer && (cell.hit == Hit::kKill || cell.hit == Hit::kAbort);
    if (cell.hit == Hit::kStop) {
      check_unchanged();
      send(pid, SIGCONT);
      check_unchanged();
    } else if (comes_back) {
      // Nothing loads the weights again.
      wait_until("another server", [&] {
        const std::optional<pid_t> other = pair_.weights_server();
        return other && *other != pid;
      });
      check_unchanged();
    } else {
      wait_until("gms-serve to end",
                 [&] { return pair_.gms().wait(Deadline::after(milliseconds(0))).has_value(); });
      if (cell.hit == Hit::kEmpty) pair_.start_gms();
      if (cell.hit == Hit::kAway || cell.hit == Hit::kEmpty) {
        check_tokens();
        expect_end(active_, {69});
        expect_end(1 - active_, {cell.hit == Hit::kAway ? 69 : 75});
        if (cell.hit == Hit::kAway) pair_.start_gms();
        return pair_.load();
      }
      pair_.start_gms();
      pair_.load();
      check_unchanged();
    }
    // The other engine wakes with the current weights.
    fail_over();
  }

  void strike_lockd(const Cell& cell) {
    const pid_t pid = pair_.lockd().pid();
    const pid_t shadow = pair_.shadow(active_).pid();
    std::this_thread::sleep_for(delay_);
    if (cell.hit == Hit::kBehind) send(shadow, SIGSTOP);
    send(pid, signal_of(cell.hit));
    if (cell.hit == Hit::kStop) {
      check_unchanged();
      send(pid, SIGCONT);
    } else {
      wait_until("gms-lockd to end",
                 [&] { return pair_.lockd().wait(Deadline::after(milliseconds(0))).has_value(); });
      if (cell.hit == Hit::kAway) {
        expect_end(active_, {76});
        pair_.start_lockd();
        return expect_active(1 - active_);
      }
      pair_.start_lockd();
    }
    if (cell.hit == Hit::kBehind) {
      wait_until("the reconnect window to end", [&] {
        const auto left = lock::read_lock_status(pair_.lock()).window_left;
        return left && *left <= base::Duration::zero();
      });
      if (pair_.state(1 - active_) != "standby") wrong("a stopped holder lost the lock");
      send(shadow, SIGCONT);
    }
    check_unchanged();
    fail_over();
  }

  void fill_device(const Cell& cell) {
    const int waker = 1 - active_;
    if (cell.hit == Hit::kRefuses) {
      restart(waker, {.environment = {{"GMS_SIM_FAULTS", "cuMemCreate:*=oom"}}});
      wait_for_state(waker, "standby");
      send(find(active_, Who::kEngine), SIGKILL);
      expect_end(active_, {137});
      return expect_end(waker, {75});
    }
    // Stopped, so that another process allocates the memory first.
    send(pair_.shadow(waker).pid(), SIGSTOP);
    send(find(active_, Who::kEngine), SIGKILL);
    expect_end(active_, {137});
    wait_until("the memory of a dead engine", [&] { return pair_.free_memory(0) > test::kPairKv; });
    const auto filler = pair_.fill(pair_.free_memory(0) - test::kPairKv / 2);
    send(pair_.shadow(waker).pid(), SIGCONT);
    wait_for_state(waker, "waking");
    if (cell.hit == Hit::kFullForLong) expect_end(waker, {75});
    filler->signal(SIGKILL);
    static_cast<void>(filler->wait(Deadline::after(test::kPairTimeout)));
    if (cell.hit == Hit::kFull) expect_active(waker);
  }

  // A leftover process of a killed fo-shadow keeps its status socket for a moment.
  void hold_status_socket() {
    const int engine = 1 - active_;
    send(pair_.shadow(engine).pid(), SIGKILL);
    expect_end(engine, {137});
    base::UniqueFd left = os::open_file(pair_.status_socket(engine) + ".lock", O_RDWR);
    wait_until("the lock of a status socket", [&] { return os::try_lock_file(left.get()); });
    pair_.start(engine);
    const std::string fds = "/proc/" + std::to_string(pair_.shadow(engine).pid()) + "/fd";
    // It has its event loop then, and opens the socket next.
    wait_until("the new fo-shadow", [&] {
      expect_running(engine);
      for (const auto& entry : std::filesystem::directory_iterator(fds)) {
        std::error_code gone;
        const auto target = std::filesystem::read_symlink(entry.path(), gone);
        if (target == "anon_inode:[eventpoll]") return true;
      }
      return false;
    });
    check_unchanged();
    left.reset();
    wait_for_state(engine, "standby");
  }

  void cut_socket(const Cell& cell) {
    if (cell.when == When::kInit) return hold_status_socket();
    if (cell.hit == Hit::kClient) {
      pair_.cut_a_client();
      return check_unchanged();
    }
    const std::string path = cell.hit == Hit::kGms      ? pair_.gms_socket(0)
                             : cell.hit == Hit::kStatus ? pair_.status_socket(active_)
                                                        : pair_.lock().path;
    std::filesystem::rename(path, path + ".away");
    if (cell.hit == Hit::kStatus) {
      check_tokens();
      std::filesystem::rename(path + ".away", path);
      check_unchanged();
      return fail_over();
    }
    if (cell.hit == Hit::kGms) {
      // The open connection stays, but an engine that wakes needs a new one.
      check_unchanged();
      send(find(active_, Who::kEngine), SIGKILL);
      expect_end(active_, {137});
      expect_end(1 - active_, {69});
      return std::filesystem::rename(path + ".away", path);
    }
    if (pair_.lock().kind == lock::LockUri::Kind::kLockd) {
      // A connected client does not need the socket's name.
      check_unchanged();
      std::filesystem::rename(path + ".away", path);
      return fail_over();
    }
    // Without its file the lock is lost, so its holder ends.
    expect_end(active_, {76, 78});
    expect_active(1 - active_);
  }

  void switch_over() {
    expect_switchover(*pair_.switch_over(), {0});
    expect_active(1 - active_);
  }

  static void expect_switchover(const os::Child& switchover, const std::set<int>& statuses) {
    const auto status = switchover.wait(Deadline::after(test::kPairTimeout));
    if (!status || !statuses.contains(*status)) {
      wrong("fo-shadow switchover ended with status " + std::to_string(status.value_or(-1)));
    }
  }

  // A random process of an engine that has one outcome in every state.
  Cell pick_engine(When when) {
    static constexpr Who kWho[] = {Who::kEngine, Who::kRank, Who::kShadow};
    static constexpr Hit kHit[] = {Hit::kKill, Hit::kAbort, Hit::kTerm};
    const Who who = kWho[pick(random_, 0, 2)];
    return {who, when, kHit[pick(random_, 0, who == Who::kRank ? 1 : 2)]};
  }

  // Strikes the active engine, and the one that takes over, in whatever state it is then.
  bool strike_twice() {
    const Cell first = pick_engine(When::kActive);
    const Cell second = pick_engine(When::kWaking);
    return try_move(name_of(first) + ", " + after_delay(name_of(second)), [&] {
      const pid_t one = find(active_, first.who);
      const pid_t other = find(1 - active_, second.who);
      send(one, signal_of(first.hit));
      std::this_thread::sleep_for(delay_);
      send(other, signal_of(second.hit));
      expect_end(active_, statuses_of(first, setting_));
      expect_end(1 - active_, statuses_of(second, setting_));
    });
  }

  // Strikes one of the two engines during a switchover.
  bool strike_in_switchover() {
    const bool strikes_active = pick(random_, 0, 1) == 1;
    const Cell cell = pick_engine(strikes_active ? When::kActive : When::kStandby);
    return try_move("switchover, " + after_delay(name_of(cell)), [&] {
      const int victim = strikes_active ? active_ : 1 - active_;
      const pid_t pid = find(victim, cell.who);
      const auto switchover = pair_.switch_over();
      std::this_thread::sleep_for(delay_);
      send(pid, signal_of(cell.hit));
      expect_end(victim, statuses_of(cell, setting_));
      pair_.start(victim);
      expect_switchover(*switchover, {0, 69, 75});
    });
  }

  [[nodiscard]] std::string after_delay(const std::string& what) const {
    return std::to_string(delay_.count()) + " ms later " + what;
  }

  // --- The steps of the moves.

  void restart(int engine, const test::Start& how) {
    send(pair_.shadow(engine).pid(), SIGKILL);
    expect_end(engine, {137});
    pair_.start(engine, how);
  }

  // Brings the victim to the state for the event, for long enough.
  void bring_to(int victim, const Cell& cell) {
    if (cell.when == When::kActive || cell.when == When::kStandby) return;
    test::Start how;
    const char* slow = cell.when == When::kInit ? "cuMemMap=1s" : "cuMemCreate=1s";
    if (setting_.vllm) {
      // At its wake it has more to map.
      slow = cell.when == When::kInit ? "cuMemImportFromShareableHandle=1s"
                                      : "cuMemImportFromShareableHandle=200ms";
    }
    how.environment = {{"GMS_SIM_LATENCY", slow}};
    if (cell.hit == Hit::kStop && cell.who != Who::kShadow) {
      how.shadow_options = {
          {cell.when == When::kInit ? "--start-timeout" : "--wake-timeout", "1500ms"}};
    }
    restart(victim, how);
    if (cell.when == When::kInit) {
      wait_until("the victim's start", [&] {
        const auto status = pair_.status(victim);
        return status && status->state == "init" && status->engine != 0 &&
               (cell.who != Who::kRank || !Pair::children_of(status->engine).empty());
      });
      return;
    }
    wait_for_state(victim, "standby");
    send(find(active_, Who::kEngine), SIGKILL);
    // It wakes once the other fo-shadow has ended.
    wait_for_state(victim, "waking");
    expect_end(active_, {137});
  }

  // The process to strike.
  pid_t find(int engine, Who who) {
    if (who == Who::kShadow) return pair_.shadow(engine).pid();
    const auto status = pair_.status(engine);
    if (!status || status->engine == 0) wrong("an engine that does not run");
    if (who == Who::kEngine) return status->engine;
    const std::vector<pid_t> ranks = Pair::children_of(status->engine);
    if (ranks.empty()) wrong("an engine without ranks");
    return ranks.at(static_cast<std::size_t>(pick(random_, 0, static_cast<int>(ranks.size()) - 1)));
  }

  static void send(pid_t pid, int signal) {
    const auto pidfd = os::open_pidfd(pid);
    if (!pidfd || !os::send_signal(pidfd->get(), signal)) wrong("its process has ended already");
  }

  // One more failover, with the restored part.
  void fail_over() {
    send(find(active_, Who::kEngine), SIGKILL);
    expect_end(active_, {137});
    expect_active(1 - active_);
  }

  // --- Expectations.

  void expect_end(int engine, const std::set<int>& statuses) {
    const int status = pair_.await_end(engine, kBound);
    if (!statuses.contains(status)) {
      wrong("fo-shadow " + std::to_string(engine) + " ended with status " + std::to_string(status) +
            " instead of " + to_text(statuses));
    }
  }

  void wait_for_state(int engine, const std::string& state) {
    wait_until(
        "engine " + std::to_string(engine) + " to be " + state,
        [&] {
          expect_running(engine);
          return pair_.state(engine) == state;
        },
        kBound);
  }

  void expect_running(int engine) {
    if (const auto status = pair_.ended(engine)) {
      wrong("fo-shadow " + std::to_string(engine) + " ended by itself, with status " +
            std::to_string(*status));
    }
  }

  void expect_active(int engine) {
    wait_for_state(engine, "active");
    check_tokens();
  }

  // No engine has taken over, and the active one serves.
  void check_unchanged() {
    for (const int engine : {0, 1}) {
      if (pair_.runs(engine)) expect_running(engine);
    }
    check_tokens();
    const auto status = pair_.status(active_);
    if (!status || status->state != "active") wrong("the active engine is not any more");
    if (status->generation != before_) wrong("the active engine has another generation");
  }

  void check_tokens() {
    const std::string now = pair_.tokens();
    if (now != tokens_) wrong("tokens " + (now.empty() ? "none" : now) + " instead of " + tokens_);
  }

  // Restarts the ended processes; then one engine is active, the other in standby, and everything
  // is checked.
  void settle() {
    for (const int engine : {0, 1}) {
      if (!pair_.runs(engine)) pair_.start(engine);
    }
    wait_until(
        "one active engine and one in standby",
        [&] {
          for (const int engine : {0, 1}) expect_running(engine);
          const std::set<std::string> states{pair_.state(0), pair_.state(1)};
          return states == std::set<std::string>{"active", "standby"};
        },
        kBound);
    if (!tokens_.empty()) check_tokens();
    const std::string holder = pair_.holder().value_or("nobody");
    const std::string id = "engine-" + std::to_string(pair_.active().value());
    if (holder != id) wrong("the lock is held by " + holder + " instead of " + id);
    const std::vector<std::uint64_t> generations = pair_.generations();
    if (!std::is_sorted(generations.begin(), generations.end(), std::less_equal<>())) {
      wrong("a generation that did not rise");
    }
    if (sampler_) {
      if (const std::string seen = sampler_->take(); !seen.empty()) wrong(seen);
    }
    if (pair_.two_served()) wrong("two engines served");
    if (!memory_.empty()) {
      wait_until(
          "the memory to be as before", [&] { return pair_.free_memory() == memory_; }, kBound);
    }
    std::vector<std::string> orphans;
    wait_until(
        "orphans to end", [&] { return (orphans = pair_.orphans()).empty(); }, kBound);
  }

  Setting setting_;
  Pair pair_;
  Random random_;
  milliseconds delay_{0};
  int active_ = 0;
  std::uint64_t before_ = 0;
  std::string tokens_;
  std::vector<base::ByteCount> memory_;
  std::unique_ptr<Sampler> sampler_;
  std::uint64_t looks_ = 0;
};

struct Options {
  std::optional<std::uint64_t> seconds;
  bool long_game = false;
  std::uint64_t seed = std::random_device()();
  bool vllm = false;
  std::string lock;
  std::string only;
};

// Runs the cells and moves of one setting, with a new pair after an error.
class Game {
 public:
  Game(const Setting& setting, std::uint64_t seed) : setting_(setting), seed_(seed) { begin(); }

  void play(const Cell& cell) { count(matrix_->play(cell)); }
  void play_at_random() { count(matrix_->play_at_random(cells_)); }
  [[nodiscard]] const std::vector<Cell>& cells() const { return cells_; }
  [[nodiscard]] std::size_t grants() const { return grants_ + matrix_->grants(); }

  /// Returns the number of errors.
  int finish() {
    test::limit_run(kMoveLimit);
    if (!matrix_->finish()) ++wrong_;
    std::printf("%s: %d moves, %zu grants, %llu looks at both, %d wrong\n",
                setting_.lockd ? "lockd" : "flock", moves_, grants(),
                static_cast<unsigned long long>(looks_ + matrix_->looks()), wrong_);
    return wrong_;
  }

 private:
  void begin() {
    test::limit_run(kMoveLimit);
    matrix_ = std::make_unique<Matrix>(setting_, seed_++);
  }

  void count(bool good) {
    test::limit_run(kMoveLimit);
    ++moves_;
    if (good) return;
    ++wrong_;
    grants_ += matrix_->grants();
    looks_ += matrix_->looks();
    matrix_.reset();
    begin();
  }

  Setting setting_;
  std::uint64_t seed_;
  std::vector<Cell> cells_ = all_cells(setting_);
  std::unique_ptr<Matrix> matrix_;
  int moves_ = 0;
  int wrong_ = 0;
  std::size_t grants_ = 0;
  std::uint64_t looks_ = 0;
};

// Cells that do not depend on the lock run on one kind only, unless one is named.
int play_once(const Setting& setting, const Options& options) {
  Game game(setting, options.seed);
  const bool all = !setting.lockd || !options.lock.empty();
  for (const Cell& cell : game.cells()) {
    const bool named = name_of(cell).find(options.only) != std::string::npos;
    if (named && (all || concerns_lock(cell))) game.play(cell);
  }
  return game.finish();
}

// Runs random moves for a time, or until this number of failovers.
int play_long(const Setting& setting, const Options& options, std::size_t failovers) {
  Game game(setting, options.seed);
  const auto time = options.seconds
                        ? std::optional<base::Duration>(std::chrono::seconds(*options.seconds))
                        : std::nullopt;
  const Deadline end = Deadline::after(time);
  while (!end.expired() && (time || game.grants() < failovers)) game.play_at_random();
  return game.finish();
}

int usage() {
  std::fprintf(stderr,
               "usage: failover_matrix [--engine refengine|vllm] [--long | --seconds N] [--seed N] "
               "[--lock flock|lockd] [--only NAME]\n");
  return base::to_int(base::ExitStatus::kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--long") {
      options.long_game = true;
      continue;
    }
    if (i + 1 == words.size()) return usage();
    const std::string& value = words[i + 1];
    if (words[i] == "--engine" && (value == "refengine" || value == "vllm")) {
      options.vllm = value == "vllm";
    } else if (words[i] == "--lock" && (value == "flock" || value == "lockd")) {
      options.lock = value;
    } else if (words[i] == "--only") {
      options.only = value;
    } else if (const auto number = base::parse_uint(value); number && words[i] == "--seed") {
      options.seed = *number;
    } else if (number && words[i] == "--seconds") {
      options.seconds = *number;
    } else {
      return usage();
    }
    ++i;
  }
  try {
    std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
    std::fflush(stdout);
    int found = 0;
    for (const std::string lock : {"flock", "lockd"}) {
      if (!options.lock.empty() && options.lock != lock) continue;
      const std::size_t failovers = options.lock.empty() ? kLongFailovers / 2 : kLongFailovers;
      const Setting setting{lock == "lockd", options.vllm};
      found += options.long_game || options.seconds ? play_long(setting, options, failovers)
                                                    : play_once(setting, options);
    }
    return found == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failover_matrix: error: %s\n", error.what());
    return 1;
  }
}
