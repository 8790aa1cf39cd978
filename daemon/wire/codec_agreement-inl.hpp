// The messages of the agreement on a group's end, outwards (fill) and inwards (read). A part of codec.cpp, as
// codec_words-inl.hpp.
#pragma once

void fill(s::Ballot::Builder b, const Ballot& m) {
    b.setRound(m.round);
    b.setCoordinator(m.coordinator);
}
void read(Decoder&, s::Ballot::Reader r, Ballot& m) {
    m = {r.getRound(), r.getCoordinator()};
}

void fill(s::FailedSet::Builder b, const FailedSet& m) {
    fill(b.initError(), m.error);
    NEXAR_CHECK(m.excluded.size() <= group_nodes_max);
    auto list = b.initExcluded(static_cast<uint32_t>(m.excluded.size()));
    for (uint32_t i = 0; i < list.size(); ++i) list.set(i, m.excluded[i]);
}
void read(Decoder& d, s::FailedSet::Reader r, FailedSet& m) {
    read(d, r.getError(), m.error);
    if (m.error.code > Errc::group || m.error.code <= Errc::session)
        d.complain("a group's end by " + std::string(name_of(m.error.code)) +
                   ", allowed are failures of a group");
    const auto list = r.getExcluded();
    d.limit("excluded", list.size(), group_nodes_max);
    for (uint32_t i = 0; d.ok() && i < list.size(); ++i) m.excluded.push_back(list[i]);
}

void fill(s::Cut::Builder b, const Cut& m) {
    b.setSeq(m.seq);
    fill(b.initFailed(), m.failed);
}
void read(Decoder& d, s::Cut::Reader r, Cut& m) {
    m.seq = r.getSeq();
    read(d, r.getFailed(), m.failed);
}

void fill(s::GroupFailed::Builder b, const GroupFailed& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    fill(b.initSeen(), m.seen);
    fill(b.initFailed(), m.failed);
}
void read(Decoder& d, s::GroupFailed::Reader r, GroupFailed& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    read(d, r.getSeen(), m.seen);
    read(d, r.getFailed(), m.failed);
}

void fill(s::GroupFreeze::Builder b, const GroupFreeze& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    fill(b.initBallot(), m.ballot);
    fill(b.initFailed(), m.failed);
}
void read(Decoder& d, s::GroupFreeze::Reader r, GroupFreeze& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    read(d, r.getBallot(), m.ballot);
    read(d, r.getFailed(), m.failed);
}

void fill(s::GroupReport::Builder b, const GroupReport& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    fill(b.initBallot(), m.ballot);
    fill(b.initFailed(), m.failed);
    b.setHandedOver(m.handed_over);
    b.setEndedBelow(m.ended_below);
    b.setHasAccepted(m.accepted.has_value());
    if (!m.accepted) return;
    fill(b.initAcceptedBallot(), m.accepted->ballot);
    fill(b.initAcceptedCut(), m.accepted->cut);
}
void read(Decoder& d, s::GroupReport::Reader r, GroupReport& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    read(d, r.getBallot(), m.ballot);
    read(d, r.getFailed(), m.failed);
    m.handed_over = r.getHandedOver();
    m.ended_below = r.getEndedBelow();
    if (!r.getHasAccepted()) return;
    m.accepted.emplace();
    read(d, r.getAcceptedBallot(), m.accepted->ballot);
    read(d, r.getAcceptedCut(), m.accepted->cut);
}

void fill(s::GroupCut::Builder b, const GroupCut& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    fill(b.initBallot(), m.ballot);
    fill(b.initCut(), m.cut);
}
void read(Decoder& d, s::GroupCut::Reader r, GroupCut& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    read(d, r.getBallot(), m.ballot);
    read(d, r.getCut(), m.cut);
}

void fill(s::GroupAccepted::Builder b, const GroupAccepted& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    fill(b.initBallot(), m.ballot);
    b.setStuckAt(m.stuck_at);
}
void read(Decoder& d, s::GroupAccepted::Reader r, GroupAccepted& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    read(d, r.getBallot(), m.ballot);
    m.stuck_at = r.getStuckAt();
}

void fill(s::GroupEnd::Builder b, const GroupEnd& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    fill(b.initCut(), m.cut);
}
void read(Decoder& d, s::GroupEnd::Reader r, GroupEnd& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    read(d, r.getCut(), m.cut);
}

void fill(s::GroupDeparted::Builder b, const GroupDeparted& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
}
void read(Decoder& d, s::GroupDeparted::Reader r, GroupDeparted& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
}
