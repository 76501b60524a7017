#include "http/pool.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "loop/alarm.h"
#include "loop/event.h"

namespace fo::http {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using Clock = Deadline::Clock;

namespace {

// The separator is unambiguous because no part contains a NUL.
std::string key_of(const Origin& origin) {
  std::string key = origin.socket_path;
  const auto add = [&](const std::string& part) { key += '\0' + part; };
  add(origin.address.host);
  add(std::to_string(origin.address.port));
  add(origin.name_servers);
  if (origin.tls) {
    for (const auto& file : {origin.tls->ca, origin.tls->certificate, origin.tls->key}) add(file);
  }
  return key;
}

}  // namespace

struct Pool::State {
  struct Idle {
    std::unique_ptr<Connection> connection;
    Clock::time_point born;
    Clock::time_point since;
  };
  // The idle connections of one origin; the most recently used one is last.
  using Shelf = std::deque<Idle>;

  State(const asio::any_io_executor& executor, const PoolLimits& within)
      : limits(within), freed(executor), expiry(executor) {}

  // Removes an idle connection that is alive.
  std::optional<Idle> take(const std::string& key);
  void put_back(const std::string& key, std::unique_ptr<Connection> connection,
                Clock::time_point born);
  // False if all connections are in use, so that no further one may be opened.
  bool make_room();
  void end_use() {
    --busy;
    freed.notify();
  }

  PoolLimits limits;
  std::map<std::string, Shelf> shelves;
  std::size_t idle = 0;
  std::size_t busy = 0;
  loop::Event freed;

 private:
  void close_oldest(std::map<std::string, Shelf>::iterator shelf);
  void close_expired();
  void set_expiry();

  loop::Alarm expiry;
  bool is_expiry_set = false;
};

std::optional<Pool::State::Idle> Pool::State::take(const std::string& key) {
  const auto found = shelves.find(key);
  if (found == shelves.end()) return std::nullopt;
  std::optional<Idle> taken;
  Shelf& shelf = found->second;
  const Clock::time_point now = Clock::now();
  while (!taken && !shelf.empty()) {
    Idle last = std::move(shelf.back());
    shelf.pop_back();
    --idle;
    const bool is_young = now < last.born + limits.age && now < last.since + limits.idle_time;
    if (is_young && last.connection->is_alive()) taken = std::move(last);
  }
  if (shelf.empty()) shelves.erase(found);
  return taken;
}

void Pool::State::put_back(const std::string& key, std::unique_ptr<Connection> connection,
                           Clock::time_point born) {
  const Clock::time_point now = Clock::now();
  if (connection->is_reusable() && now < born + limits.age && limits.idle_per_origin > 0) {
    const auto shelf = shelves.try_emplace(key).first;
    shelf->second.push_back({std::move(connection), born, now});
    ++idle;
    if (shelf->second.size() > limits.idle_per_origin) close_oldest(shelf);
    set_expiry();
  }
  end_use();
}

bool Pool::State::make_room() {
  if (busy + idle < limits.connections) return true;
  const auto oldest =
      std::min_element(shelves.begin(), shelves.end(), [](const auto& one, const auto& other) {
        return one.second.front().since < other.second.front().since;
      });
  if (oldest == shelves.end()) return false;
  close_oldest(oldest);
  return true;
}

void Pool::State::close_oldest(std::map<std::string, Shelf>::iterator shelf) {
  shelf->second.pop_front();
  --idle;
  if (shelf->second.empty()) shelves.erase(shelf);
}

void Pool::State::close_expired() {
  const Clock::time_point end = Clock::now() - limits.idle_time;
  for (auto at = shelves.begin(); at != shelves.end();) {
    const auto shelf = at++;
    // Removing its last connection removes the shelf.
    for (std::size_t left = shelf->second.size(); left > 0; --left) {
      if (shelf->second.front().since > end) break;
      close_oldest(shelf);
    }
  }
}

// One alarm serves all idle connections; it is set while there are any.
void Pool::State::set_expiry() {
  if (std::exchange(is_expiry_set, true)) return;
  expiry.set(Deadline::after(limits.idle_time), [this] {
    is_expiry_set = false;
    close_expired();
    if (idle > 0) set_expiry();
  });
}

void Pool::Return::operator()(Connection* connection) const {
  std::unique_ptr<Connection> owned(connection);
  if (const std::shared_ptr<State> state = state_.lock()) {
    state->put_back(key_, std::move(owned), born_);
  }
}

Pool::Pool(asio::any_io_executor executor, const PoolLimits& limits)
    : state_(std::make_shared<State>(executor, limits)) {}

Pool::~Pool() {
  // Other owners may keep the state for a moment longer.
  state_->limits.idle_per_origin = 0;
  state_->shelves.clear();
  state_->idle = 0;
}

// The caller has made room for it.
awaitable<Pool::Lease> Pool::connect(std::shared_ptr<State> state, Origin origin, Deadline deadline,
                                     std::string what) {
  Return back;
  back.state_ = state;
  back.key_ = key_of(origin);
  back.born_ = Clock::now();
  // Ends the use if opening fails. An open connection is in use until it is returned.
  struct EndUse {
    State* state;
    ~EndUse() {
      if (state != nullptr) state->end_use();
    }
  } end_use{state.get()};
  ++state->busy;
  std::unique_ptr<Connection> connection =
      co_await Connection::open(std::move(origin), deadline, std::move(what), state->limits.answer);
  end_use.state = nullptr;
  co_return Lease(connection.release(), std::move(back));
}

awaitable<void> Pool::wait_for_room(std::shared_ptr<State> state, Deadline deadline,
                                    std::string what) {
  if (deadline.expired()) {
    throw Error(ExitStatus::kTryAgain, what + ": timed out: all connections are in use",
                std::make_error_code(std::errc::too_many_files_open));
  }
  co_await state->freed.wait(deadline);
}

awaitable<Pool::Lease> Pool::get(Origin origin, Deadline deadline, std::string what) {
  // Keeps the state if the pool is destroyed meanwhile.
  const std::shared_ptr<State> state = state_;
  Return back;
  back.state_ = state;
  back.key_ = key_of(origin);
  for (;;) {
    std::optional<State::Idle> idle = state->take(back.key_);
    if (idle) {
      ++state->busy;
      back.born_ = idle->born;
      idle->connection->set_what(std::move(what));
      co_return Lease(idle->connection.release(), std::move(back));
    }
    if (state->make_room()) break;
    co_await wait_for_room(state, deadline, what);
  }
  co_return co_await connect(state, std::move(origin), deadline, std::move(what));
}

awaitable<Pool::Lease> Pool::open(Origin origin, Deadline deadline, std::string what) {
  const std::shared_ptr<State> state = state_;
  while (!state->make_room()) co_await wait_for_room(state, deadline, what);
  co_return co_await connect(state, std::move(origin), deadline, std::move(what));
}

std::size_t Pool::idle() const { return state_->idle; }
std::size_t Pool::busy() const { return state_->busy; }

}  // namespace fo::http
