#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "net/resolve.h"
#include "os/file/file.h"
#include "os/log.h"

namespace fo::net {
namespace {

namespace ssl = boost::asio::ssl;
using base::Error;
using base::ExitStatus;

constexpr base::ByteCount kMaxFileBytes = base::kMiB;

struct Free {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
  void operator()(X509* certificate) const { ::X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

// Returns OpenSSL's reason for the first failure, and clears its queue.
std::string take_reason() {
  const char* reason = ::ERR_reason_error_string(::ERR_peek_error());
  ::ERR_clear_error();
  return reason != nullptr ? reason : "not usable";
}

// A PEM file, open for reading piece by piece.
class PemFile {
 public:
  /// `kind` is "authority", "certificate" or "key".
  PemFile(std::string_view kind, const std::string& path)
      : what_(std::string(kind) + " file " + base::quoted(path)), content_(read(path)) {
    ::ERR_clear_error();
    bio_.reset(::BIO_new_mem_buf(content_.data(), static_cast<int>(content_.size())));
    if (!bio_) refuse();
  }

  /// Returns at least one certificate.
  std::vector<Certificate> certificates() {
    std::vector<Certificate> all;
    for (;;) {
      Certificate next(::PEM_read_bio_X509(bio_.get(), nullptr, refuse_passphrase, &asked_));
      if (next) {
        all.push_back(std::move(next));
      } else if (!all.empty() && is_at_end()) {
        ::ERR_clear_error();
        return all;
      } else {
        refuse();
      }
    }
  }

  Key key() {
    Key key(::PEM_read_bio_PrivateKey(bio_.get(), nullptr, refuse_passphrase, &asked_));
    if (!key) refuse();
    return key;
  }

  void check(int result) const {
    if (result != 1) refuse();
  }

 private:
  static bool is_at_end() {
    const unsigned long error = ::ERR_peek_last_error();
    return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  }

  std::string read(const std::string& path) const {
    try {
      return os::read_file(path, kMaxFileBytes);
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kBadData) throw;
      throw Error(ExitStatus::kConfig, error.what());
    }
  }

  // OpenSSL's default callback would ask on the terminal.
  static int refuse_passphrase(char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  }

  [[noreturn]] void refuse() const {
    const std::string reason = take_reason();
    throw Error(ExitStatus::kConfig, what_ + ": " + (asked_ ? "it needs a passphrase" : reason));
  }

  std::string what_;
  std::string content_;
  std::unique_ptr<BIO, Free> bio_;
  bool asked_ = false;
};

[[noreturn]] void refuse_files(const std::string& reason) {
  throw Error(ExitStatus::kUsage, "TLS: " + reason);
}

ssl::context make_context(ssl::context::method method) {
  // Must precede every call that may read OpenSSL's configuration, which may load modules.
  if (::OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) != 1) {
    throw Error(ExitStatus::kOsError, "start OpenSSL: " + take_reason());
  }
  ssl::context context(method);
  SSL_CTX* native = context.native_handle();
  ::SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  if (SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION) != 1) {
    throw Error(ExitStatus::kOsError, "set up TLS: " + take_reason());
  }
  return context;
}

void trust(SSL_CTX* context, const std::string& path) {
  PemFile file("authority", path);
  for (const Certificate& authority : file.certificates()) {
    file.check(::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context), authority.get()));
    // Tells clients which authorities' certificates are accepted.
    file.check(::SSL_CTX_add_client_CA(context, authority.get()));
  }
  // Also accepts an intermediate authority as a trust anchor.
  ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
}

void show(SSL_CTX* context, const TlsFiles& files) {
  PemFile certificate("certificate", files.certificate);
  const std::vector<Certificate> chain = certificate.certificates();
  certificate.check(::SSL_CTX_use_certificate(context, chain.front().get()));
  for (std::size_t i = 1; i < chain.size(); ++i) {
    certificate.check(static_cast<int>(SSL_CTX_add1_chain_cert(context, chain[i].get())));
  }
  PemFile key("key", files.key);
  key.check(::SSL_CTX_use_PrivateKey(context, key.key().get()));
  // If certificate and key are of different kinds, the call above does not compare them.
  key.check(::SSL_CTX_check_private_key(context));
}

ExitStatus status_of_refusal(long verdict) {
  const bool is_transient =
      verdict == X509_V_ERR_CERT_NOT_YET_VALID || verdict == X509_V_ERR_CERT_HAS_EXPIRED;
  return is_transient ? ExitStatus::kUnavailable : ExitStatus::kConfig;
}

// Whether the peer's alert is a permanent refusal.
bool is_refusal(int reason) {
  switch (reason) {
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_TLSV1_ALERT_INSUFFICIENT_SECURITY:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return true;
    default:
      return false;
  }
}

bool is_transient(int reason) {
  return reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED ||
         reason == SSL_R_TLSV1_ALERT_INTERNAL_ERROR;
}

}  // namespace

ssl::context make_tls_client(const TlsFiles& files) {
  if (files.ca.empty()) refuse_files("a client needs a CA file");
  if (files.certificate.empty() != files.key.empty()) {
    refuse_files("a certificate needs its key, and a key its certificate");
  }
  ssl::context context = make_context(ssl::context::tls_client);
  SSL_CTX* native = context.native_handle();
  ::SSL_CTX_set_verify(native, SSL_VERIFY_PEER, nullptr);
  trust(native, files.ca);
  if (!files.certificate.empty()) show(native, files);
  return context;
}

ssl::context tls_client(const TlsFiles& files) {
  static thread_local std::map<TlsFiles, CachedTls> all;
  const auto keep = CachedTls::Invalid::kKeepLast;
  return all.try_emplace(files, files, make_tls_client, keep).first->second.context();
}

ssl::context make_tls_server(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty()) {
    refuse_files("a server needs a certificate and its key");
  }
  ssl::context context = make_context(ssl::context::tls_server);
  SSL_CTX* native = context.native_handle();
  // No session resumption: each connection presents its certificates.
  ::SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  show(native, files);
  if (!files.ca.empty()) {
    trust(native, files.ca);
    ::SSL_CTX_set_verify(native, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

ssl::context CachedTls::context() {
  // Taken before the files are read, so that a change meanwhile is read again.
  const Stamps stamps{stamp_of(files_.ca), stamp_of(files_.certificate), stamp_of(files_.key)};
  if (stamps != stamps_) {
    is_current_ = false;
    refusal_.reset();
    stamps_ = stamps;
  }
  if (!is_current_) {
    try {
      read();
    } catch (const Error& error) {
      if (invalid_ == Invalid::kRefuse || !context_) throw;
      if (!std::exchange(is_logged_, true)) {
        os::log(os::LogLevel::kWarning, "{}; the last valid TLS files still apply", error.what());
      }
    }
  }
  if (::SSL_CTX_up_ref(context_->native_handle()) != 1) {
    throw Error(ExitStatus::kOsError, "share the TLS context");
  }
  return ssl::context(context_->native_handle());
}

void CachedTls::read() {
  if (refusal_) throw Error(*refusal_);
  try {
    context_ = make_(files_);
  } catch (const Error& error) {
    // Other errors are not those of the content, and may be transient.
    if (error.status() == ExitStatus::kConfig) refusal_ = error;
    throw;
  }
  is_current_ = true;
  is_logged_ = false;
}

CachedTls::Stamp CachedTls::stamp_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {static_cast<std::int64_t>(info.st_dev),
          static_cast<std::int64_t>(info.st_ino),
          info.st_size,
          info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec,
          info.st_ctim.tv_sec,
          info.st_ctim.tv_nsec};
}

void expect_host(SSL* ssl, const std::string& host) {
  X509_VERIFY_PARAM* wanted = ::SSL_get0_param(ssl);
  ::X509_VERIFY_PARAM_set_hostflags(
      wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  const bool is_numeric = numeric_address(host).has_value();
  const int result = is_numeric ? ::X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str())
                                : ::X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size());
  // An empty name would disable the check.
  if (host.empty() || result != 1) refuse_files("missing host name");
  if (is_numeric) return;
  std::string name = host;
  // The expansion of SSL_set_tlsext_host_name, without its C cast.
  if (::SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data()) != 1) {
    throw Error(ExitStatus::kOsError,
                "name " + base::quoted(host) + " in the handshake: " + take_reason());
  }
}

std::optional<std::string> peer_common_name(SSL* ssl) {
  const std::unique_ptr<X509, decltype(&::X509_free)> certificate(::SSL_get1_peer_certificate(ssl),
                                                                  &::X509_free);
  if (!certificate) return std::nullopt;
  std::array<char, 256> name{};
  const int size = ::X509_NAME_get_text_by_NID(::X509_get_subject_name(certificate.get()),
                                               NID_commonName, name.data(), name.size());
  if (size < 0) return std::nullopt;
  return std::string(name.data());
}

bool is_plain_text(const boost::system::error_code& error) {
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  return error.category() == boost::asio::error::get_ssl_category() &&
         (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST);
}

Error tls_error(const std::string& what, const boost::system::error_code& error, SSL* ssl) {
  if (error == boost::asio::ssl::error::stream_truncated || error == boost::asio::error::eof) {
    return Error(ExitStatus::kUnavailable, what + ": the connection ended early");
  }
  if (error.category() != boost::asio::error::get_ssl_category()) {
    return Error(ExitStatus::kUnavailable, what, error);
  }
  const auto code = static_cast<unsigned long>(error.value());
  const int reason = ERR_GET_REASON(code);
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const long verdict = ::SSL_get_verify_result(ssl);
    return Error(status_of_refusal(verdict), what + ": the certificate was rejected: " +
                                                 ::X509_verify_cert_error_string(verdict));
  }
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return Error(ExitStatus::kConfig, what + ": the peer sent no certificate");
  }
  const char* const text = ::ERR_reason_error_string(code);
  const std::string said = text != nullptr ? text : "TLS failed";
  if (is_refusal(reason)) {
    return Error(ExitStatus::kConfig, what + ": the peer rejected this side: " + said);
  }
  return Error(is_transient(reason) ? ExitStatus::kUnavailable : ExitStatus::kProtocol,
               what + ": " + said);
}

}  // namespace fo::net
