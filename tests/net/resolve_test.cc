#include "net/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/dns_server.h"
#include "support/fds.h"
#include "support/inherited_fds.h"
#include "support/must_run.h"
#include "support/soon.h"

namespace fo::net::test {
namespace {

using base::Deadline;
using base::ExitStatus;
using boost::asio::ip::tcp;
using fo::test::inherited_fds;
using fo::test::open_fds;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

using fo::test::soon;

class Resolve : public testing::Test {
 protected:
  struct Outcome {
    std::vector<std::string> addresses;
    std::optional<ExitStatus> status;
    std::string reason;
  };

  void start(const std::string& host, const Deadline& deadline, const std::string& servers = {}) {
    boost::asio::co_spawn(loop_, resolve(host, 80, deadline, servers),
                          boost::asio::bind_cancellation_slot(
                              cancel_.slot(), [this](const std::exception_ptr& error,
                                                     const std::vector<tcp::endpoint>& found) {
                                take(error, found);
                                loop_.stop();
                              }));
  }
  Outcome run(const std::string& host, const Deadline& deadline, const std::string& servers = {}) {
    start(host, deadline, servers);
    loop_.run();
    return outcome_;
  }
  /// Queries a server that gives this answer.
  Outcome ask(const std::string& host, DnsAnswer answer, const Deadline& deadline = soon()) {
    const DnsServer server(loop_.get_executor(), std::move(answer));
    return run(host, deadline, server.address());
  }

  boost::asio::io_context loop_{1};
  boost::asio::cancellation_signal cancel_;
  Outcome outcome_;

 private:
  void take(const std::exception_ptr& error, const std::vector<tcp::endpoint>& found) {
    for (const tcp::endpoint& endpoint : found) {
      EXPECT_EQ(endpoint.port(), 80);
      outcome_.addresses.push_back(endpoint.address().to_string());
    }
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const base::Error& failure) {
      outcome_.status = failure.status();
      outcome_.reason = failure.what();
    } catch (const std::exception& failure) {
      outcome_.reason = failure.what();
    }
  }
};

std::optional<std::string> silence(const DnsQuestion&) { return std::nullopt; }

std::optional<std::string> no_such_name(const DnsQuestion& question) {
  return dns_answer(question, {}, 3);
}

/// "etcd.test" has two IPv4 addresses; other names are unknown.
std::optional<std::string> two_addresses(const DnsQuestion& question) {
  if (question.name != "etcd.test") return no_such_name(question);
  if (question.is_ipv6) return dns_answer(question, {});
  return dns_answer(question, {"\x7f\0\0\1"s, "\x7f\0\0\2"s});
}

TEST_F(Resolve, NumbersAndLocalhostAreNotLookedUp) {
  const Deadline expired = Deadline::after(base::Duration::zero());
  EXPECT_THAT(run("127.0.0.9", expired, "127.0.0.1:1").addresses, ElementsAre("127.0.0.9"));
  loop_.restart();
  outcome_ = {};
  EXPECT_THAT(run("::1", expired, "127.0.0.1:1").addresses, ElementsAre("::1"));
  loop_.restart();
  outcome_ = {};
  EXPECT_THAT(run("localhost", expired, "127.0.0.1:1").addresses, ElementsAre("127.0.0.1"));
}

TEST_F(Resolve, AsksTheServerForAllAddresses) {
  const Outcome outcome = ask("etcd.test", two_addresses);
  EXPECT_EQ(outcome.reason, "");
  EXPECT_THAT(outcome.addresses, testing::UnorderedElementsAre("127.0.0.1", "127.0.0.2"));
}

TEST_F(Resolve, TakesNoMoreThanSixteenAddresses) {
  const Outcome outcome = ask("many.test", [](const DnsQuestion& question) {
    std::vector<std::string> addresses;
    for (char last = 1; last <= 30; ++last) addresses.push_back("\x7f\0\0"s + last);
    return dns_answer(question, question.is_ipv6 ? std::vector<std::string>{} : addresses);
  });
  EXPECT_EQ(outcome.addresses.size(), 16U) << outcome.reason;
}

TEST_F(Resolve, ANameThatNobodyKnowsIsUnavailable) {
  const Outcome outcome = ask("nobody.test", no_such_name);
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable);
  EXPECT_EQ(outcome.reason, "resolve 'nobody.test': Domain name not found");
}

TEST_F(Resolve, ANameWithoutAddressesIsUnavailable) {
  const Outcome outcome =
      ask("empty.test", [](const DnsQuestion& question) { return dns_answer(question, {}); });
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable);
  EXPECT_THAT(outcome.reason, HasSubstr("resolve 'empty.test': "));
}

TEST_F(Resolve, AServerThatIsNotThereIsUnavailable) {
  // An address that was bound and is closed again.
  std::string address;
  {
    boost::asio::io_context other(1);
    address = DnsServer(other.get_executor(), silence).address();
  }
  EXPECT_EQ(run("etcd.test", soon(), address).status, ExitStatus::kUnavailable);
}

TEST_F(Resolve, SilenceEndsWithTheDeadline) {
  const Outcome outcome = ask("etcd.test", silence, Deadline::after(std::chrono::milliseconds(30)));
  EXPECT_EQ(outcome.status, ExitStatus::kTryAgain);
  EXPECT_EQ(outcome.reason, "resolve 'etcd.test': timed out");
}

TEST_F(Resolve, ALostQuestionIsAskedAgain) {
  int asked = 0;
  const Outcome outcome = ask("etcd.test", [&](const DnsQuestion& question) {
    return ++asked <= 2 ? std::nullopt : two_addresses(question);
  });
  EXPECT_EQ(outcome.addresses.size(), 2U) << outcome.reason;
}

TEST_F(Resolve, AnAnswerOfAnotherNumberIsNone) {
  const Outcome outcome = ask(
      "etcd.test",
      [](const DnsQuestion& question) {
        std::string answer = *two_addresses(question);
        answer[1] = static_cast<char>(answer[1] ^ 1);
        return answer;
      },
      Deadline::after(std::chrono::milliseconds(100)));
  EXPECT_EQ(outcome.status, ExitStatus::kTryAgain) << outcome.reason;
}

TEST_F(Resolve, AnAnswerFromAnotherPortIsNone) {
  using boost::asio::ip::udp;
  udp::socket other_server(loop_, udp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const Outcome outcome = ask(
      "etcd.test",
      [&](const DnsQuestion& question) {
        other_server.send_to(boost::asio::buffer(*two_addresses(question)), question.peer);
        return std::nullopt;
      },
      Deadline::after(std::chrono::milliseconds(100)));
  EXPECT_EQ(outcome.status, ExitStatus::kTryAgain) << outcome.reason;
}

TEST_F(Resolve, NamesThatStandForEachOtherHaveNoAddress) {
  const Outcome outcome = ask("a.test", [](const DnsQuestion& question) {
    // Both records, whichever was asked for: "a.test" is "b.test", which is "a.test".
    std::string answer = dns_answer(question, {});
    answer[7] = 2;
    const std::string head = "\0\5\0\1\0\0\0\0\0\10"s;
    answer += "\1a\4test\0"s + head + "\1b\4test\0"s;
    answer += "\1b\4test\0"s + head + "\1a\4test\0"s;
    return answer;
  });
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable);
  EXPECT_EQ(outcome.reason, "resolve 'a.test': DNS server returned answer with no data");
}

TEST_F(Resolve, AnAnswerThatIsCutIsAskedForOverTcp) {
  const DnsAnswer cut = [](const DnsQuestion& question) {
    std::string answer = dns_answer(question, {});
    answer[2] = static_cast<char>(answer[2] | 2);
    return answer;
  };
  // Find a port that is free for both.
  std::list<DnsServer> servers;
  std::optional<DnsTcpServer> whole;
  while (!whole) {
    servers.emplace_back(loop_.get_executor(), cut);
    try {
      whole.emplace(loop_.get_executor(), servers.back().port(), two_addresses);
    } catch (const boost::system::system_error& error) {
      ASSERT_EQ(error.code(), boost::asio::error::address_in_use);
    }
  }
  const Outcome outcome = run("etcd.test", soon(), servers.back().address());
  EXPECT_EQ(outcome.addresses.size(), 2U) << outcome.reason;
}

TEST_F(Resolve, AServerThatIsDeafIsPassedOver) {
  const DnsServer silent(loop_.get_executor(), silence);
  const DnsServer server(loop_.get_executor(), two_addresses);
  const Outcome outcome = run("etcd.test", soon(), silent.address() + "," + server.address());
  EXPECT_EQ(outcome.addresses.size(), 2U) << outcome.reason;
  EXPECT_GT(silent.questions(), 0);
}

TEST_F(Resolve, EveryTruncationOfAnAnswerIsAnErrorOrSilence) {
  const DnsQuestion question{
      "etcd.test", false, "\0\0\1\0\0\1\0\0\0\0\0\0\4etcd\4test\0\0\1\0\1"s, {}};
  const std::size_t whole = dns_answer(question, {"\x7f\0\0\1"s}).size();
  for (std::size_t size = 0; size < whole; ++size) {
    loop_.restart();
    outcome_ = {};
    const Outcome outcome = ask(
        "etcd.test",
        [size](const DnsQuestion& asked) {
          return dns_answer(asked, {"\x7f\0\0\1"s}).substr(0, size);
        },
        Deadline::after(std::chrono::milliseconds(20)));
    EXPECT_TRUE(outcome.addresses.empty()) << size;
    EXPECT_TRUE(outcome.status == ExitStatus::kTryAgain ||
                outcome.status == ExitStatus::kUnavailable)
        << size << ": " << outcome.reason;
  }
}

TEST_F(Resolve, GarbageIsNoAnswer) {
  const Outcome outcome = ask(
      "etcd.test",
      [](const DnsQuestion& question) {
        return question.packet.substr(0, 2) + std::string(600, '\xff');
      },
      Deadline::after(std::chrono::milliseconds(30)));
  EXPECT_TRUE(outcome.addresses.empty());
  EXPECT_TRUE(outcome.status == ExitStatus::kTryAgain || outcome.status == ExitStatus::kUnavailable)
      << outcome.reason;
}

TEST_F(Resolve, ReadsTheHostsFile) {
  std::string own(256, '\0');
  ASSERT_EQ(::gethostname(own.data(), own.size()), 0);
  own.resize(own.find('\0'));
  const Outcome outcome = ask(
      own,
      [](const DnsQuestion&) -> std::optional<std::string> {
        ADD_FAILURE() << "the server was asked";
        return std::nullopt;
      },
      Deadline::after(std::chrono::seconds(2)));
  if (!outcome.addresses.empty()) return;
  FO_SKIP("hosts", "/etc/hosts does not name this machine: " + outcome.reason);
}

TEST_F(Resolve, CancellingEndsItAtOnceAndClosesEverySocket) {
  const DnsServer server(loop_.get_executor(), [this](const DnsQuestion&) {
    cancel_.emit(boost::asio::cancellation_type::terminal);
    return std::nullopt;
  });
  const std::ptrdiff_t before = open_fds();
  const Outcome outcome = run("etcd.test", Deadline::never(), server.address());
  EXPECT_EQ(outcome.status, std::nullopt);
  EXPECT_THAT(outcome.reason, HasSubstr("canceled"));
  EXPECT_EQ(open_fds(), before);
}

TEST_F(Resolve, MayBeDestroyedWhileItWaits) {
  const std::ptrdiff_t before = open_fds();
  {
    boost::asio::io_context loop(1);
    const DnsServer server(loop.get_executor(), [&](const DnsQuestion&) {
      loop.stop();
      return std::nullopt;
    });
    boost::asio::co_spawn(loop, resolve("etcd.test", 80, Deadline::never(), server.address()),
                          [](const std::exception_ptr&, const std::vector<tcp::endpoint>&) {
                            ADD_FAILURE() << "nothing was to end";
                          });
    loop.run();
  }
  EXPECT_EQ(open_fds(), before);
}

TEST_F(Resolve, NothingIsInherited) {
  std::set<int> before;
  bool asked = false;
  const DnsServer server(loop_.get_executor(), [&](const DnsQuestion& question) {
    asked = true;
    EXPECT_EQ(inherited_fds(), before);
    return two_addresses(question);
  });
  // The server's asio socket is inheritable and does not count.
  before = inherited_fds();
  run("etcd.test", soon(), server.address());
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace fo::net::test
