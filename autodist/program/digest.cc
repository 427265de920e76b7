#include "autodist/ir/canonical.h"
#include "autodist/program/program.h"

namespace autodist::program {
namespace {

class ProgramEncoder {
 public:
  Digest digest(const Program& program) {
    const auto add = [&](const auto& item) { encode(item); };
    out_.add(std::uint64_t{kProgramFormat});
    out_.add(structural_digest(*program.graph));
    out_.add_all(program.ranks, add);
    out_.add_all(program.shards, add);
    out_.add_all(program.slices, add);
    out_.add_all(program.collectives, add);
    out_.add_all(program.variables, add);
    out_.add_all(program.roles, add);
    out_.add(std::uint64_t{program.stages});
    out_.add(std::uint64_t{program.micro_batches});
    out_.add_all(program.transfers, add);
    out_.add(program.window);
    out_.add_all(program.batch_shares, [&](std::int64_t share) { out_.add(share); });
    return out_.digest();
  }

 private:
  void encode(const RankInfo& rank) {
    out_.add(rank.node);
    out_.add(rank.device);
    out_.add(rank.replica);
  }
  void encode(const Shard& shard) {
    out_.add(shard.variable);
    out_.add(shard.name);
    out_.add(shard.axis);
    out_.add(shard.begin);
    out_.add(shard.end);
    out_.add(shard.elements);
  }
  void encode(const Compression& compression) {
    out_.add(compression.codec);
    out_.add(compression.error_feedback);
    out_.add(compression.density);
    out_.add(std::int64_t{compression.rank});
    out_.add(compression.warm_start);
  }
  void encode(const Slice& slice) {
    out_.add_all(slice.pieces, [&](const Piece& piece) {
      out_.add(piece.shard);
      out_.add(piece.begin);
      out_.add(piece.end);
    });
    out_.add(slice.dtype);
    out_.add(slice.owner);
    out_.add(slice.needed);
    out_.add(slice.members);
    encode(slice.exchange);
  }
  void encode(const Slices& exchange) {
    const auto add = [&](const auto& each) { encode(each); };
    out_.add(std::uint64_t{exchange.payload.index()});
    std::visit(add, exchange.payload);
    out_.add(std::uint64_t{exchange.order.index()});
    std::visit(add, exchange.order);
  }
  void encode(const Dense& dense) {
    out_.add(dense.route);
    encode(dense.up);
    encode(dense.down);
    out_.add(dense.delivery);
  }
  void encode(const Rows& rows) { out_.add(rows.transfer); }
  void encode(const Factors& /*factors*/) {}
  void encode(const Versions& versions) {
    out_.add(std::uint64_t{versions.staleness});
    out_.add(versions.update_at);
  }
  void encode(const Asynchronous& /*order*/) {}
  void encode(const Collective& collective) {
    out_.add(collective.variables);
    out_.add(collective.dtype);
    out_.add(collective.members);
    out_.add(collective.spec);
    encode(collective.exchange.codec);
  }
  void encode(const VariablePlan& plan) {
    out_.add(plan.slices);
    out_.add(plan.collective);
    out_.add(plan.clip);
  }
  void encode(const Role& role) {
    out_.add(role.ranks);
    out_.add_all(role.streams, [&](const Stream& stream) {
      out_.add(stream.kind);
      out_.add_all(stream.instructions, [&](const Instruction& instruction) {
        out_.add(std::uint64_t{instruction.index()});
        std::visit([&](const auto& alternative) { encode(alternative); }, instruction);
      });
    });
  }
  void encode(const Gate& gate) { out_.add(gate.variable); }
  void encode(const StageTransfer& transfer) {
    out_.add(transfer.value);
    out_.add(std::uint64_t{transfer.micro_batch});
    out_.add(std::uint64_t{transfer.from});
    out_.add_all(transfer.to, [&](std::uint32_t stage) { out_.add(std::uint64_t{stage}); });
  }
  void encode(const Compute& compute) {
    out_.add(compute.op);
    out_.add(std::uint64_t{compute.micro_batch});
  }
  void encode(const Contribute& contribute) {
    out_.add(contribute.variable);
    out_.add(contribute.gradient);
    out_.add(std::uint64_t{contribute.micro_batch});
  }
  void encode(const Send& send) { out_.add(send.transfer); }
  void encode(const Receive& receive) { out_.add(receive.transfer); }
  void encode(const KeepFactors& keep) {
    out_.add(keep.variable);
    out_.add(keep.left);
    out_.add(keep.right);
  }
  void encode(const Release& release) { out_.add(release.variable); }
  void encode(const AllReduce& all_reduce) { out_.add(all_reduce.collective); }
  void encode(const Update& update) { out_.add(update.variable); }
  void encode(const Norm& norm) { out_.add(norm.clip); }
  void encode(const AgreeFinite& agree) { out_.add(to_string(agree.scaling)); }
  void encode(const StepBarrier&) {}
  void encode(const Fetch& fetch) {
    out_.add(fetch.variable);
    out_.add(fetch.rows);
  }

  ir::Canonical out_;
};

}  // namespace

Digest digest_of(const Program& program) { return ProgramEncoder().digest(program); }

}  // namespace autodist::program
