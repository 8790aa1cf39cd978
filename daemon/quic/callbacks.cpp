// The callbacks of ngtcp2; each passes its event to the Connection. None may call ngtcp2's read or write
// functions.
#include <ngtcp2/ngtcp2_crypto.h>

#include "quic/initial.hpp"

namespace nexar::quic {

struct Callbacks {
    static Connection& self(void* user) { return *static_cast<Connection*>(user); }

    // The glue gives the TLS library the bytes without their level.
    static int recv_crypto_data(ngtcp2_conn* conn, ngtcp2_encryption_level level, uint64_t offset,
                                const uint8_t* data, size_t size, void* user) {
        TlsSession& tls = self(user).tls_;
        const int failed = tls.take(level, size)
                               ? ngtcp2_crypto_recv_crypto_data_cb(conn, level, offset, data, size, user)
                               : NGTCP2_ERR_CRYPTO;
        if (!tls.is_misplaced()) return failed;
        ngtcp2_conn_set_tls_alert(conn, unexpected_message_alert);
        return NGTCP2_ERR_CRYPTO;
    }
    static int recv_rx_key(ngtcp2_conn*, ngtcp2_encryption_level level, void* user) {
        return self(user).tls_.change_level(level) ? 0 : NGTCP2_ERR_CALLBACK_FAILURE;
    }
    static int handshake_completed(ngtcp2_conn*, void* user) {
        // The accepting side has verified the dialler's Finished by now.
        if (!self(user).we_dialled()) self(user).has_opened_ = true;
        return 0;
    }
    static int handshake_confirmed(ngtcp2_conn*, void* user) {
        // The dialling side waits for HANDSHAKE_DONE: in TLS 1.3 its own handshake completes before the peer
        // has verified its certificate, and `connected` means that both sides accepted.
        if (self(user).we_dialled()) self(user).has_opened_ = true;
        return 0;
    }
    static int recv_stream_data(ngtcp2_conn*, uint32_t flags, int64_t stream, uint64_t, const uint8_t* data,
                                size_t size, void* user, void*) {
        if (size > 0) self(user).on_stream_data(stream, bytes_of(data, size));
        if (flags & NGTCP2_STREAM_DATA_FLAG_FIN) self(user).end_bad_stream("the peer ended a class stream");
        return 0;
    }
    static int acked_stream_data(ngtcp2_conn*, int64_t stream, uint64_t offset, uint64_t size, void* user,
                                 void*) {
        self(user).on_acked(stream, offset + size);
        return 0;
    }
    static int stream_reset(ngtcp2_conn*, int64_t, uint64_t, uint64_t, void* user, void*) {
        self(user).end_bad_stream("the peer reset a class stream");
        return 0;
    }
    static int recv_stop_sending(ngtcp2_conn*, int64_t, uint64_t, void* user, void*) {
        self(user).end_bad_stream("the peer stopped reading a class stream");
        return 0;
    }
    static int recv_stateless_reset(ngtcp2_conn*, const ngtcp2_pkt_stateless_reset2*, void* user) {
        self(user).was_reset_ = true;
        return 0;
    }
    static void random(uint8_t* into, size_t size, const ngtcp2_rand_ctx* context) {
        (*static_cast<RandomSource*>(context->native_handle))({reinterpret_cast<std::byte*>(into), size});
    }
    static int new_connection_id(ngtcp2_conn*, ngtcp2_cid* cid, ngtcp2_stateless_reset_token* token,
                                 size_t size, void* user) {
        Connection& c = self(user);
        cid->datalen = size;
        c.shared_.random({reinterpret_cast<std::byte*>(cid->data), size});
        if (ngtcp2_crypto_generate_stateless_reset_token(token->data, data_of(Bytes(c.shared_.reset_secret)),
                                                         c.shared_.reset_secret.size(), cid) != 0)
            return NGTCP2_ERR_CALLBACK_FAILURE;
        c.new_keys_.push_back(Connection::key_of(cid->data, cid->datalen));
        return 0;
    }
    static int remove_connection_id(ngtcp2_conn*, const ngtcp2_cid* cid, void* user) {
        self(user).old_keys_.push_back(Connection::key_of(cid->data, cid->datalen));
        return 0;
    }
    static int path_challenge(ngtcp2_conn*, ngtcp2_path_challenge_data* data, void* user) {
        self(user).shared_.random({reinterpret_cast<std::byte*>(data->data), sizeof data->data});
        return 0;
    }
    static ngtcp2_callbacks table() {
        ngtcp2_callbacks c{};
        c.client_initial = ngtcp2_crypto_client_initial_cb;
        c.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
        c.recv_crypto_data = recv_crypto_data;
        c.recv_rx_key = recv_rx_key;
        c.encrypt = ngtcp2_crypto_encrypt_cb;
        c.decrypt = ngtcp2_crypto_decrypt_cb;
        c.hp_mask = ngtcp2_crypto_hp_mask_cb;
        c.recv_retry = ngtcp2_crypto_recv_retry_cb;
        c.update_key = ngtcp2_crypto_update_key_cb;
        c.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb;
        c.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
        c.version_negotiation = ngtcp2_crypto_version_negotiation_cb;
        c.handshake_completed = handshake_completed;
        c.handshake_confirmed = handshake_confirmed;
        c.recv_stream_data = recv_stream_data;
        c.acked_stream_data_offset = acked_stream_data;
        c.stream_reset = stream_reset;
        c.recv_stop_sending = recv_stop_sending;
        c.recv_stateless_reset2 = recv_stateless_reset;
        c.rand = random;
        c.get_new_connection_id2 = new_connection_id;
        c.remove_connection_id = remove_connection_id;
        c.get_path_challenge_data2 = path_challenge;
        return c;
    }
};

const ngtcp2_callbacks& connection_callbacks() {
    static const ngtcp2_callbacks table = Callbacks::table();
    return table;
}

}  // namespace nexar::quic
