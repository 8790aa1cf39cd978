// The one form of a public key that peers may show: ECDSA P-256, its curve named, its point uncompressed (RFC
// 5480). To be asked before a TLS library parses a peer's certificate or request: a library reads any key at
// once, and one that gives its curve by parameters of its own takes it as long as its sender likes. Dry.
#pragma once

#include "core/bytes.hpp"
#include "core/result.hpp"

namespace nexar {

constexpr size_t chain_length_max = 4;  // certificates that a peer may show, its own included

// `der`: an X.509 certificate (RFC 5280 section 4.1), a PKCS #10 request (RFC 2986 section 4.1), all of it.
// bad_certificate: its key has another form, or no key can be found in it. What comes after the key is left
// to the library.
Result<> check_certificate_key(Bytes der);
Result<> check_request_key(Bytes der);
// Each certificate of a Certificate message of TLS 1.3 (RFC 8446 section 4.4.2); `body`: without the type
// and length that are before it. It may hold none.
Result<> check_certificate_message(Bytes body);

}  // namespace nexar
