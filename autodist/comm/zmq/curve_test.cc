#include "autodist/comm/zmq/curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <optional>
#include <zmq.hpp>

#include "autodist/comm/zmq/socket.h"

namespace autodist::comm {
namespace {

std::string hex(const std::array<unsigned char, 32>& digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

// FIPS 180-4's examples, and one that fills a block exactly.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(CurveKeys, AreTheSameForOneJobAndOthersForAnother) {
  const CurveKeys keys = curve_keys_of("a");
  EXPECT_EQ(curve_keys_of("a").server_secret, keys.server_secret);
  EXPECT_NE(curve_keys_of("b").server_secret, keys.server_secret);
  EXPECT_NE(keys.client_secret, keys.server_secret);
}

// A server of job "right"; what a client with these keys gets through.
std::optional<std::string> received(const CurveKeys* client, std::uint64_t* refused) {
  zmq::context_t context;
  const CurveKeys keys = curve_keys_of("right");
  const ClientGate gate(context, keys);
  zmq::socket_t server(context, zmq::socket_type::pull);
  configure(server.handle(), SocketUse::kReceiveFrames);
  secure(server.handle(), CurveSide::kServer, keys);
  const std::uint16_t port = bind(server.handle(), "127.0.0.1", 0);
  zmq::socket_t sender(context, zmq::socket_type::push);
  configure(sender.handle(), SocketUse::kSendFrames);
  if (client != nullptr) secure(sender.handle(), CurveSide::kClient, *client);
  sender.connect(endpoint("127.0.0.1", port));
  sender.send(zmq::buffer(std::string("hello")), zmq::send_flags::dontwait);
  server.set(zmq::sockopt::rcvtimeo, 1500);
  zmq::message_t message;
  const bool came = server.recv(message).has_value();
  *refused = gate.refused();
  if (!came) return std::nullopt;
  return message.to_string();
}

TEST(ClientGate, AdmitsTheJobsKeyAlone) {
  std::uint64_t refused = 0;
  const CurveKeys right = curve_keys_of("right");
  EXPECT_EQ(received(&right, &refused), "hello");
  EXPECT_EQ(refused, 0U);

  // Knows the server's key, as anybody may, and has a pair of its own.
  CurveKeys stranger = curve_keys_of("wrong");
  stranger.server_public = right.server_public;
  EXPECT_EQ(received(&stranger, &refused), std::nullopt);
  EXPECT_GT(refused, 0U);

  const CurveKeys other_job = curve_keys_of("wrong");
  EXPECT_EQ(received(&other_job, &refused), std::nullopt);
  EXPECT_EQ(received(nullptr, &refused), std::nullopt) << "in clear text";
}

}  // namespace
}  // namespace autodist::comm
