# Daemon to daemon: membership, rendezvous, and the messages of groups at work. Headers of data are not here
# (docs/protocol/wire.md). The meaning of each message is beside its struct in daemon/wire/messages.hpp.
#
# Compatibility: fields and union members are only ever added, at the end. A reader of version N-1 sees the
# defaults. Limits on every list and text: daemon/wire/limits.hpp.
@0xd0b3a1c7f25e4986;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("nexar::wire::schema");

struct Message {
  union {
    hello @0 :Hello;
    rosterUpdate @1 :RosterUpdate;
    heartbeat @2 :Heartbeat;
    goodbye @3 :Goodbye;
    probeRequest @4 :ProbeRequest;
    probeReply @5 :ProbeReply;
    groupOpen @6 :GroupOpen;
    groupWithdraw @7 :GroupWithdraw;
    groupPrepare @8 :GroupPrepare;
    groupPrepared @9 :GroupPrepared;
    groupCommit @10 :GroupCommit;
    groupRefused @11 :GroupRefused;
    groupStatusRequest @12 :GroupStatusRequest;
    groupStatus @13 :GroupStatus;
    rankGone @14 :RankGone;
    suspicionReport @15 :SuspicionReport;
    groupFailed @16 :GroupFailed;
    opAbort @17 :OpAbort;
    opAnnounce @18 :OpAnnounce;
    arrivalQuery @19 :ArrivalQuery;
    arrivalReply @20 :ArrivalReply;
    messageOffer @21 :MessageOffer;
    messageWithdraw @22 :MessageWithdraw;
    messageRefused @23 :MessageRefused;
    groupQuery @24 :GroupQuery;
    renewalRequest @25 :RenewalRequest;
    renewalReply @26 :RenewalReply;
    messageCredit @27 :MessageCredit;
    groupUnlisted @28 :GroupUnlisted;
    groupFreeze @29 :GroupFreeze;
    groupReport @30 :GroupReport;
    groupCut @31 :GroupCut;
    groupAccepted @32 :GroupAccepted;
    groupEnd @33 :GroupEnd;
    groupDeparted @34 :GroupDeparted;
    groupLeader @35 :GroupLeader;
    createQuery @36 :CreateQuery;
    createAnswer @37 :CreateAnswer;
  }
}

# ---- Shared structs ----

struct Incarnation {
  counter @0 :UInt64;
  nonce @1 :UInt64;
}
struct GroupId {
  creator @0 :UInt64;
  incarnation @1 :UInt64;
  counter @2 :UInt64;
}
struct Error {
  code @0 :Int32;
  text @1 :Text;
  rank @2 :Int64 = -1;
  otherRank @3 :Int64 = -1;
  node @4 :Text;
  pid @5 :UInt32;
}
struct NodeRecord {
  node @0 :Data;  # 32 bytes
  hostname @1 :Text;
  addresses @2 :List(Text);
}
struct RequestId {
  origin @0 :Data;  # 32 bytes
  number @1 :UInt64;
}

# ---- Nodes ----

struct Hello {
  node @0 :Data;  # 32 bytes
  incarnation @1 :Incarnation;
  cluster @2 :Data;  # 16 bytes
  self @3 :NodeRecord;
  bulkPort @4 :UInt16;
  bulkShards @5 :UInt16;
  roster @6 :List(NodeRecord);
}
struct RosterUpdate {
  nodes @0 :List(NodeRecord);
}
struct Heartbeat {}
struct Goodbye {
  reason @0 :Text;
}
struct ProbeRequest {
  nonce @0 :UInt64;
  target @1 :Data;
  incarnation @2 :Incarnation;
}
struct ProbeReply {
  nonce @0 :UInt64;
  reached @1 :Bool;
}
struct RenewalRequest {
  csr @0 :Data;  # PEM
}
struct RenewalReply {
  error @0 :Error;
  certificate @1 :Data;  # PEM, as the next one
  issuerCertificate @2 :Data;
}

# ---- Rendezvous ----

# Milliseconds; -1: not set, 0: none.
struct Timeouts {
  collective @0 :Int64 = -1;
  barrier @1 :Int64 = -1;
  rpc @2 :Int64 = -1;
}
struct GroupOpen {
  id @0 :RequestId;
  key @1 :Data;  # 32 bytes
  name @2 :Text;
  size @3 :UInt32;
  rank @4 :Int64 = -1;
  pid @5 :UInt32;
  incarnation @6 :Incarnation;
  bulkShards @7 :UInt16 = 1;
  timeouts @8 :Timeouts;
  features @9 :UInt64;
  nonce @10 :Data;  # 16 bytes, random, of this open
  openerMark @11 :UInt64;  # of the opener's user and label, for hints; 0: not known
}
struct GroupWithdraw {
  id @0 :RequestId;
  key @1 :Data;
  moved @2 :Bool;
  expired @3 :Bool;
}
# 24 bytes per member: the nodes (with their incarnations) stand once in a table, so that the largest group fits in one message.
struct Member {
  number @0 :UInt64;
  rank @1 :UInt32;
  pid @2 :UInt32;
  node @3 :UInt16;    # index into Members.nodes
  origin @4 :UInt16;  # the same, of the request's id
}
struct Members {
  nodes @0 :List(Data);
  list @1 :List(Member);
  incarnations @2 :List(Incarnation);  # of nodes, one for one; fewer: the rest is not known
  features @3 :List(UInt64);           # the same; fewer: the rest has none
  nonces @4 :List(Data);               # 16 bytes each, of nodes, one for one; fewer: the rest has zeroes
}
struct PlanTable {
  version @0 :UInt32;
  smallBytesMax @1 :UInt64;
  doublingBytesMax @2 :UInt64;
  chunkBytes @3 :UInt64;
  segmentBytes @4 :UInt64;
  lanes @5 :UInt32;
  bulkShards @6 :UInt16;
  # From plan function 3 on (docs/protocol/planning.md).
  smallStartNs @7 :UInt32;
  smallPsPerByte @8 :UInt32;
  bulkStartNs @9 :UInt32;
  bulkPsPerByte @10 :UInt32;
  memoryPsPerByte @11 :UInt32;
  sharedPsPerByte @12 :UInt32;
  largeMessageBytes @13 :UInt64;
  ringNodesMax @14 :UInt32;
  family @15 :UInt8;
}
struct GroupPrepare {
  group @0 :GroupId;
  epoch @1 :UInt32;
  key @2 :Data;
  name @3 :Text;
  members @4 :Members;
  plan @5 :PlanTable;
  timeouts @6 :Timeouts;  # agreed: all are set
}
struct GroupPrepared {
  group @0 :GroupId;
  error @1 :Error;
  tag @2 :Data;  # 32 bytes; zeroes: the answer is a refusal
}
struct GroupCommit {
  group @0 :GroupId;
  tags @1 :List(Data);  # 32 bytes each: of the member nodes, in ascending order of their NodeIds
}
struct GroupQuery {
  group @0 :GroupId;
}
struct GroupRefused {
  id @0 :RequestId;
  group @1 :GroupId;
  error @2 :Error;
}
struct GroupUnlisted {
  id @0 :RequestId;
}
struct GroupLeader {
  leader @0 :Data;  # 32 bytes
}
struct CreateCall {
  rank @0 :UInt32;
  number @1 :UInt64;
}
struct CreateQuery {
  group @0 :GroupId;
  epoch @1 :UInt32;
  tag @2 :UInt64;
  ranks @3 :List(UInt32);
  callers @4 :List(CreateCall);
  ask @5 :UInt32;
}
struct CreateAnswer {
  group @0 :GroupId;
  epoch @1 :UInt32;
  tag @2 :UInt64;
  calls @3 :List(CreateCall);
  otherTag @4 :UInt64;
  ranks @5 :List(UInt32);
  callers @6 :List(CreateCall);
  ended @7 :Bool;
  ask @8 :UInt32;
}
struct GroupStatusRequest {
  id @0 :RequestId;
  key @1 :Data;
}
struct GroupStatus {
  id @0 :RequestId;
  size @1 :UInt32;
  present @2 :Members;
  others @3 :UInt32;  # opens of the same name and opener's mark with another key, for a hint; the directory may look at a part of them only
  gaveUp @4 :UInt32;  # the last so many of `present` have given up shortly before
}

# ---- Groups at work ----

struct RankGone {
  group @0 :GroupId;
  epoch @1 :UInt32;
  rank @2 :UInt32;
  collectivesHandedOver @3 :UInt64;
  crashed @4 :Bool;
  reason @5 :Text;
  freed @6 :Bool;
}
struct SuspicionReport {
  group @0 :GroupId;
  epoch @1 :UInt32;
  reporter @2 :Data;
  suspect @3 :Data;
  reason @4 :Text;
  proof @5 :Bool;
}
struct OpAbort {
  group @0 :GroupId;
  epoch @1 :UInt32;
  seq @2 :UInt64;
  error @3 :Error;
}
struct OpAnnounce {
  group @0 :GroupId;
  epoch @1 :UInt32;
  seq @2 :UInt64;
  kind @3 :UInt8;
  dtype @4 :UInt8;
  op @5 :UInt8;
  count @6 :UInt64;
  root @7 :UInt32;
  firstRank @8 :UInt32;
  planHash @9 :UInt64;
  matchId @10 :UInt64;
  countsDigest @11 :UInt64;
  partials @12 :UInt8;
}
struct ArrivalQuery {
  group @0 :GroupId;
  epoch @1 :UInt32;
  seq @2 :UInt64;
  nonce @3 :UInt64;
}
struct Arrival {
  rank @0 :UInt32;
  nextSeq @1 :UInt64;
  stalled @2 :Bool;  # it has posted the asked one, which waits for bytes that it must move [S13]
}
struct ArrivalReply {
  group @0 :GroupId;
  nonce @1 :UInt64;
  ranks @2 :List(Arrival);
}
struct MessageOffer {
  group @0 :GroupId;
  epoch @1 :UInt32;
  src @2 :UInt32;
  dst @3 :UInt32;
  tag @4 :UInt64;
  bytes @5 :UInt64;
  dtype @6 :UInt8;
  number @7 :UInt64;
  onlyNow @8 :Bool;
}
struct MessageWithdraw {
  group @0 :GroupId;
  number @1 :UInt64;
}
struct MessageRefused {
  group @0 :GroupId;
  number @1 :UInt64;
  error @2 :Error;
}
struct MessageCredit {
  group @0 :GroupId;
  epoch @1 :UInt32;
  src @2 :UInt32;
  limit @3 :UInt64;
}

# ---- The agreement on a group's end: docs/protocol/group_lifecycle.md ----

struct Ballot {
  round @0 :UInt64;
  coordinator @1 :UInt32;
}
struct FailedSet {
  error @0 :Error;
  excluded @1 :List(UInt32);
}
struct Cut {
  seq @0 :UInt64;
  failed @1 :FailedSet;
}
struct GroupFailed {
  group @0 :GroupId;
  epoch @1 :UInt32;
  seen @2 :Ballot;
  failed @3 :FailedSet;
}
struct GroupFreeze {
  group @0 :GroupId;
  epoch @1 :UInt32;
  ballot @2 :Ballot;
  failed @3 :FailedSet;
}
struct GroupReport {
  group @0 :GroupId;
  epoch @1 :UInt32;
  ballot @2 :Ballot;
  failed @3 :FailedSet;
  handedOver @4 :UInt64;
  endedBelow @5 :UInt64;
  hasAccepted @6 :Bool;
  acceptedBallot @7 :Ballot;
  acceptedCut @8 :Cut;
}
struct GroupCut {
  group @0 :GroupId;
  epoch @1 :UInt32;
  ballot @2 :Ballot;
  cut @3 :Cut;
}
struct GroupAccepted {
  group @0 :GroupId;
  epoch @1 :UInt32;
  ballot @2 :Ballot;
  stuckAt @3 :UInt64;
}
struct GroupEnd {
  group @0 :GroupId;
  epoch @1 :UInt32;
  cut @2 :Cut;
}
struct GroupDeparted {
  group @0 :GroupId;
  epoch @1 :UInt32;
}
