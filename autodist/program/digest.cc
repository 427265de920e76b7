#include "autodist/ir/canonical.h"
#include "autodist/program/program.h"

namespace autodist::program {
namespace {

class ProgramEncoder {
 public:
  Digest digest(const Program& program) {
    const auto add = [&](const auto& item) { encode(item); };
    out_.add_each(std::uint64_t{kProgramFormat}, structural_digest(*program.graph));
    out_.add_all(program.ranks, add);
    out_.add_all(program.shards, add);
    out_.add_all(program.slices, add);
    out_.add_all(program.collectives, add);
    out_.add_all(program.variables, add);
    out_.add_all(program.roles, add);
    out_.add_each(program.stages, program.micro_batches);
    out_.add_all(program.transfers, add);
    out_.add_each(program.window, program.batch_shares);
    return out_.digest();
  }

 private:
  template <typename... Alternatives>
  void encode(const std::variant<Alternatives...>& variant) {
    out_.add(std::uint64_t{variant.index()});
    std::visit([&](const auto& alternative) { encode(alternative); }, variant);
  }
  void encode(const RankInfo& rank) { out_.add_each(rank.node, rank.device, rank.replica); }
  void encode(const Shard& shard) {
    out_.add_each(shard.variable, shard.name, shard.axis, shard.begin, shard.end, shard.elements);
  }
  void encode(const Compression& compression) {
    out_.add_each(compression.codec, compression.error_feedback, compression.density,
                  std::int64_t{compression.rank}, compression.warm_start);
  }
  void encode(const Slice& slice) {
    out_.add_all(slice.pieces,
                 [&](const Piece& piece) { out_.add_each(piece.shard, piece.begin, piece.end); });
    out_.add_each(slice.dtype, slice.owner, slice.needed, slice.members);
    encode(slice.exchange);
  }
  void encode(const Slices& exchange) {
    encode(exchange.payload);
    encode(exchange.order);
  }
  void encode(const Dense& dense) {
    out_.add(dense.route);
    encode(dense.up);
    encode(dense.down);
    out_.add(dense.delivery);
  }
  void encode(const Rows& rows) { out_.add(rows.transfer); }
  void encode(const Factors& /*factors*/) {}
  void encode(const Versions& versions) { out_.add_each(versions.staleness, versions.update_at); }
  void encode(const Asynchronous& /*order*/) {}
  void encode(const Collective& collective) {
    out_.add_each(collective.variables, collective.dtype, collective.members, collective.spec);
    encode(collective.exchange.codec);
  }
  void encode(const VariablePlan& plan) { out_.add_each(plan.slices, plan.collective, plan.clip); }
  void encode(const Role& role) {
    out_.add(role.ranks);
    out_.add_all(role.streams, [&](const Stream& stream) {
      out_.add(stream.kind);
      out_.add_all(stream.instructions,
                   [&](const Instruction& instruction) { encode(instruction); });
    });
  }
  void encode(const Gate& gate) { out_.add(gate.variable); }
  void encode(const StageTransfer& transfer) {
    out_.add_each(transfer.value, transfer.micro_batch, transfer.from, transfer.to);
  }
  void encode(const Compute& compute) { out_.add_each(compute.op, compute.micro_batch); }
  void encode(const Contribute& contribute) {
    out_.add_each(contribute.variable, contribute.gradient, contribute.micro_batch);
  }
  void encode(const Send& send) { out_.add(send.transfer); }
  void encode(const Receive& receive) { out_.add(receive.transfer); }
  void encode(const KeepFactors& keep) { out_.add_each(keep.variable, keep.left, keep.right); }
  void encode(const Release& release) { out_.add(release.variable); }
  void encode(const AllReduce& all_reduce) { out_.add(all_reduce.collective); }
  void encode(const Update& update) { out_.add(update.variable); }
  void encode(const Norm& norm) { out_.add(norm.clip); }
  void encode(const AgreeFinite& agree) { out_.add(to_string(agree.scaling)); }
  void encode(const StepBarrier&) {}
  void encode(const Fetch& fetch) { out_.add_each(fetch.variable, fetch.rows); }

  ir::Canonical out_;
};

}  // namespace

Digest digest_of(const Program& program) { return ProgramEncoder().digest(program); }

}  // namespace autodist::program
