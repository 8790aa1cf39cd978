// Owning pointers for the few OpenSSL types that admission uses. Private to this folder.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "core/result.hpp"
#include "core/secret.hpp"

namespace nexar::admission {

template <auto free_function>
struct Free {
    template <class T>
    void operator()(T* p) const {
        free_function(p);
    }
};
inline void free_der(unsigned char* der) {
    OPENSSL_free(der);
}
using DerPtr = std::unique_ptr<unsigned char, Free<free_der>>;
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using CertPtr = std::unique_ptr<X509, Free<X509_free>>;
using ReqPtr = std::unique_ptr<X509_REQ, Free<X509_REQ_free>>;
using NamePtr = std::unique_ptr<X509_NAME, Free<X509_NAME_free>>;
using ExtPtr = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using StorePtr = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using StoreCtxPtr = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;

// An error with the TLS library's last error in its text. Empties the library's error queue.
inline std::unexpected<Error> openssl_failed(Errc code, const std::string& what) {
    char text[256] = "no further reason";
    if (const auto e = ERR_get_error()) ERR_error_string_n(e, text, sizeof text);
    ERR_clear_error();
    return fail(code, what + ": " + text);
}

Result<KeyPtr> read_key(const Secret& pem);
Result<CertPtr> read_certificate(const std::string& pem);
Result<std::string> write_certificate(X509* certificate);

}  // namespace nexar::admission
