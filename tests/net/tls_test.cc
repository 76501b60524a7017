#include "net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "os/file/file.h"
#include "support/authority.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/stderr_text.h"

namespace fo::net {
namespace {

using base::ExitStatus;
using fo::test::failure_of;
using testing::HasSubstr;
using testing::StartsWith;

class Tls : public fo::test::FdCounting {
 protected:
  fo::test::Failure client_failure(const TlsFiles& files) {
    return failure_of([&] { make_tls_client(files); });
  }
  fo::test::Failure server_failure(const TlsFiles& files) {
    return failure_of([&] { make_tls_server(files); });
  }
  std::string write(const std::string& name, const std::string& content) {
    os::write_file_atomic(authority_.path(name), content);
    return authority_.path(name);
  }

  fo::test::Authority authority_;
  TlsFiles files_ = authority_.issue("DNS:localhost");
};

TEST_F(Tls, TakesWhatTheAuthorityMade) {
  EXPECT_NO_THROW(make_tls_client({authority_.ca(), "", ""}));
  EXPECT_NO_THROW(make_tls_client(files_));
  EXPECT_NO_THROW(make_tls_server(files_));
  EXPECT_NO_THROW(make_tls_server({"", files_.certificate, files_.key}));
}

TEST_F(Tls, WantsTheFilesThatAreNeeded) {
  EXPECT_EQ(client_failure({}).status, ExitStatus::kUsage);
  EXPECT_EQ(client_failure({"", files_.certificate, files_.key}).status, ExitStatus::kUsage);
  EXPECT_EQ(client_failure({authority_.ca(), files_.certificate, ""}).status, ExitStatus::kUsage);
  EXPECT_EQ(client_failure({authority_.ca(), "", files_.key}).status, ExitStatus::kUsage);
  EXPECT_EQ(server_failure({authority_.ca(), "", ""}).status, ExitStatus::kUsage);
  EXPECT_EQ(server_failure({"", files_.certificate, ""}).status, ExitStatus::kUsage);
}

TEST_F(Tls, AClientNeedsAHost) {
  boost::asio::ssl::context context = make_tls_client({authority_.ca(), "", ""});
  const std::unique_ptr<SSL, decltype(&::SSL_free)> ssl(::SSL_new(context.native_handle()),
                                                        &::SSL_free);
  EXPECT_NO_THROW(expect_host(ssl.get(), "::1"));
  EXPECT_NO_THROW(expect_host(ssl.get(), "localhost"));
  EXPECT_EQ(failure_of([&] { expect_host(ssl.get(), ""); }).status, ExitStatus::kUsage);
}

TEST_F(Tls, AMissingFileIsNamed) {
  const fo::test::Failure failure = client_failure({authority_.path("none"), "", ""});
  EXPECT_EQ(failure.status, ExitStatus::kNoInput);
  EXPECT_EQ(failure.message, "open '" + authority_.path("none") + "': No such file or directory");
}

TEST_F(Tls, AFileThatIsNoneIsNamedWithTheReason) {
  const std::string none = write("none", "nothing\n");
  fo::test::Failure failure = client_failure({none, "", ""});
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_EQ(failure.message, "authority file '" + none + "': no start line");
  failure = server_failure({"", none, files_.key});
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_EQ(failure.message, "certificate file '" + none + "': no start line");
  failure = server_failure({"", files_.certificate, none});
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_THAT(failure.message, StartsWith("key file '" + none + "': "));
}

TEST_F(Tls, InvalidFilesAreReadAgainOnceOneHasChanged) {
  const TlsFiles files{"", write("certificate", "nothing\n"), files_.key};
  ServerTls server(files);
  const base::UniqueFd opened(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(::inotify_add_watch(opened.get(), files.certificate.c_str(), IN_OPEN), 0);
  const fo::test::Failure first = failure_of([&] { server.context(); });
  EXPECT_EQ(first.status, ExitStatus::kConfig);
  inotify_event event{};
  EXPECT_EQ(::read(opened.get(), &event, sizeof event), ssize_t{sizeof event});
  const fo::test::Failure second = failure_of([&] { server.context(); });
  EXPECT_EQ(second.status, ExitStatus::kConfig);
  EXPECT_EQ(second.message, first.message);
  EXPECT_FALSE(os::is_readable(opened.get())) << "the file was opened again";
  write("certificate", os::read_file(files_.certificate, base::kMiB));
  EXPECT_TRUE(server.context());
}

TEST_F(Tls, AClientKeepsTheLastValidFilesWhileTheyCannotBeUsed) {
  const std::string valid = os::read_file(authority_.ca(), base::kMiB);
  const TlsFiles files{write("ca", valid), "", ""};
  const SSL_CTX* const first = tls_client(files).native_handle();
  EXPECT_EQ(tls_client(files).native_handle(), first);
  const fo::test::StderrText log;
  write("ca", valid.substr(0, valid.size() / 2));
  EXPECT_EQ(tls_client(files).native_handle(), first);
  const std::string logged = log.text();
  EXPECT_THAT(logged, HasSubstr("authority file '" + files.ca + "': "));
  EXPECT_THAT(logged, HasSubstr("; the last valid TLS files still apply"));
  std::filesystem::remove(files.ca);
  EXPECT_EQ(tls_client(files).native_handle(), first);
  EXPECT_EQ(log.text(), logged) << "one episode is logged once";
  write("ca", valid);
  EXPECT_NE(tls_client(files).native_handle(), first);
  std::filesystem::remove(files.ca);
  tls_client(files);
  EXPECT_NE(log.text(), logged);
}

TEST_F(Tls, AClientWhoseFilesCouldNeverBeUsedIsRefused) {
  const TlsFiles files{write("ca", "nothing\n"), "", ""};
  EXPECT_EQ(failure_of([&] { tls_client(files); }).status, ExitStatus::kConfig);
  write("ca", os::read_file(authority_.ca(), base::kMiB));
  EXPECT_NO_THROW(tls_client(files));
}

TEST_F(Tls, EveryTruncationOfACertificateIsRefused) {
  const std::string whole = os::read_file(files_.certificate, base::kMiB);
  const std::size_t end = whole.find("-----END");
  for (std::size_t size = 0; size <= end; size += 7) {
    const TlsFiles cut{write("cut", whole.substr(0, size)), "", ""};
    EXPECT_EQ(client_failure(cut).status, ExitStatus::kConfig) << size;
  }
}

TEST_F(Tls, ABrokenOneAfterAGoodOneIsRefused) {
  const std::string good = os::read_file(authority_.ca(), base::kMiB);
  const std::string bad = write("bad", good + "-----BEGIN CERTIFICATE-----\nAAAA\n");
  EXPECT_EQ(client_failure({bad, "", ""}).status, ExitStatus::kConfig);
}

TEST_F(Tls, AFileWithoutEndIsRefused) {
  EXPECT_EQ(client_failure({"/dev/zero", "", ""}).status, ExitStatus::kConfig);
}

TEST_F(Tls, AKeyOfAnotherCertificateIsRefused) {
  const TlsFiles other = authority_.issue("DNS:localhost");
  const fo::test::Failure failure = server_failure({"", files_.certificate, other.key});
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_EQ(failure.message, "key file '" + other.key + "': key values mismatch");
}

TEST_F(Tls, AKeyOfAnotherKindIsRefused) {
  const std::string key = authority_.path("ed25519");
  fo::test::Authority::openssl({"genpkey", "-algorithm", "ED25519", "-out", key});
  const fo::test::Failure failure = server_failure({"", files_.certificate, key});
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_THAT(failure.message, StartsWith("key file '" + key + "': "));
}

TEST_F(Tls, NobodyIsAskedForAPassphrase) {
  const std::string key = authority_.path("locked");
  fo::test::Authority::openssl(
      {"pkey", "-in", files_.key, "-aes128", "-passout", "pass:secret", "-out", key});
  for (const TlsFiles& files : {TlsFiles{authority_.ca(), files_.certificate, key},
                                TlsFiles{"", files_.certificate, key}}) {
    const fo::test::Failure failure =
        files.ca.empty() ? server_failure(files) : client_failure(files);
    EXPECT_EQ(failure.status, ExitStatus::kConfig);
    EXPECT_EQ(failure.message, "key file '" + key + "': it needs a passphrase");
  }
}

}  // namespace
}  // namespace fo::net
