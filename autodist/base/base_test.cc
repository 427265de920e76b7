#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "autodist/base/background.h"
#include "autodist/base/check.h"
#include "autodist/base/digest.h"
#include "autodist/base/digest_stream.h"
#include "autodist/base/dtype.h"
#include "autodist/base/error.h"
#include "autodist/base/even_part.h"
#include "autodist/base/file.h"
#include "autodist/base/json_complaint.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/base/units.h"
#include "tests/outcome_of.h"

namespace autodist {
namespace {

using testing_jobs::refusal;

struct TemporaryFolder {
  TemporaryFolder()
      : path((std::filesystem::temp_directory_path() /
              ("autodist_base_test_" + std::to_string(::getpid())))
                 .string()) {
    std::filesystem::create_directory(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(path), {});
  }
  const std::string path;
};

// Writes beyond so many bytes of a file fail.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit low{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

void write_in_place(const std::string& path, const std::string& bytes) {
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << bytes;
}

TEST(EvenPart, TheFirstPartsTakeTheRest) {
  EXPECT_EQ(even_part(7, 0, 3), (std::pair<std::int64_t, std::int64_t>{0, 3}));
  EXPECT_EQ(even_part(7, 1, 3), (std::pair<std::int64_t, std::int64_t>{3, 5}));
  EXPECT_EQ(even_part(7, 2, 3), (std::pair<std::int64_t, std::int64_t>{5, 7}));
}

TEST(EvenPart, SingleRowsJoinTheirNeighbours) {
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const auto joined = [](std::int64_t total, std::int64_t count) {
    Ranges ranges;
    for (std::int64_t i = 0; i < count; ++i) ranges.push_back(even_part(total, i, count));
    join_single_rows(ranges);
    return ranges;
  };
  EXPECT_EQ(joined(8, 2), (Ranges{{0, 4}, {4, 8}}));
  EXPECT_EQ(joined(3, 2), (Ranges{{0, 3}, {3, 3}}));
  EXPECT_EQ(joined(2, 2), (Ranges{{0, 2}, {2, 2}}));
  EXPECT_EQ(joined(1, 2), (Ranges{{0, 1}, {1, 1}}));
  EXPECT_EQ(joined(5, 3), (Ranges{{0, 2}, {2, 5}, {5, 5}}));
  EXPECT_EQ(joined(4, 4), (Ranges{{0, 2}, {2, 2}, {2, 4}, {4, 4}}));
  EXPECT_EQ(joined(5, 4), (Ranges{{0, 2}, {2, 5}, {4, 4}, {5, 5}}));
  EXPECT_EQ(joined(3, 4), (Ranges{{0, 3}, {2, 2}, {3, 3}, {3, 3}}));
}

TEST(Check, ThrowsWithFileConditionAndMessage) {
  try {
    AD_CHECK(1 + 1 == 3) << "sum is " << 2;
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("base_test.cc"), std::string::npos);
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(text.find("sum is 2"), std::string::npos);
  }
}

TEST(Nearest, FindsAMisspeltKeyAndNothingForAForeignOne) {
  const std::vector<std::string> keys{"address", "network_bandwidth", "chief"};
  EXPECT_EQ(nearest("adress", keys), "address");
  EXPECT_EQ(nearest("network_bandwith", keys), "network_bandwidth");
  EXPECT_EQ(nearest("net", keys), "network_bandwidth");
  EXPECT_EQ(nearest("zzz", keys), "");
  EXPECT_EQ(nearest("PS", {"P3", "ps"}), "ps") << "another case is no misspelling";
  EXPECT_EQ(nearest_hint("adress", keys), ". Nearest: 'address'.");
  EXPECT_EQ(nearest_hint("zzz", keys), ".");
  EXPECT_EQ(did_you_mean("adress", keys), " Did you mean 'address'?");
  EXPECT_EQ(did_you_mean("zzz", keys), "");
}

TEST(JsonComplaint, IsWithoutTheLibrarysOwnWords) {
  const auto complaint = [](const char* text) { return json_complaint(std::runtime_error(text)); };
  EXPECT_EQ(complaint("[json.exception.parse_error.101] parse error at line 1, column 1: syntax "
                      "error while parsing value - invalid literal; last read: 'x'"),
            "parse error at line 1, column 1: syntax error while parsing value - invalid literal");
  EXPECT_EQ(complaint("[json.exception.type_error.304] cannot use at() with array"),
            "an object expected, but it is array");
  EXPECT_EQ(complaint("stoi"), "stoi") << "of another library";
}

TEST(File, ComesBackWholeAndLeavesNoPartialFile) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("autodist_base_test_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "file").string();
  const std::string bytes("a\0b", 3);
  write_file_atomically(path, "old");
  write_file_atomically(path, bytes);
  EXPECT_EQ(read_file(path), bytes);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_THROW(read_file(path, 2), Error);
  EXPECT_THROW(read_file((folder / "missing").string()), Error);
  EXPECT_THROW(read_file(folder.string()), Error);
  std::filesystem::remove_all(folder);
}

TEST(File, IsAsItWasWhereTheNewOneCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/file";
  write_file_atomically(path, "good");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THROW(write_file_atomically(path, std::string(2000, 'x')), Error);
    OutputFile file(path);
    file.write("begun", 5);
    file.write(std::string(2000, 'x').data(), 2000);  // does not throw
    file.write("after", 5);
    EXPECT_THROW(file.written(), Error);
    EXPECT_THROW(file.commit(), Error);
  }
  {
    OutputFile file(path);
    file.write("left alone", 10);
  }
  {
    OutputFile file(path);
    file.write("what was written", 16);
    write_in_place(file.written(), "what WAS written");  // as a disk that lies
    EXPECT_EQ(refusal([&] { file.commit(); }),
              path + ": cannot be written: read back: it is not what was written");
  }
  EXPECT_EQ(read_file(path), "good");
  EXPECT_EQ(folder.files(), 1);
  EXPECT_EQ(refusal([] { write_file_atomically("/dev/full", "x"); }),
            "/dev/full: cannot be written: write: No space left on device");
}

TEST(File, ALinkAndADeviceStayWhatTheyAre) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path + "/file", "old");
  std::filesystem::create_symlink("file", folder.path + "/link");
  write_file_atomically(folder.path + "/link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path + "/link"));
  EXPECT_EQ(read_file(folder.path + "/file"), "new");
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(File, GrowsByWholeRecords) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/log";
  {
    AppendedFile log(path, "--log");
    EXPECT_TRUE(log.began_empty());
    EXPECT_TRUE(log.append("first\n"));
    {
      const FileSizeLimit limit(10);
      EXPECT_FALSE(log.append("does not fit\n"));
      EXPECT_FALSE(log.append("neither this\n"));
    }
    EXPECT_EQ(log.failure(), "--log: File too large");
    EXPECT_TRUE(log.append("second\n"));
  }
  EXPECT_EQ(read_file(path), "first\nsecond\n");
  EXPECT_FALSE(AppendedFile(path, "--log").began_empty());
  EXPECT_TRUE(AppendedFile(path, "--log", AppendedFile::Begin::kAnew).began_empty());
  AppendedFile full("/dev/full", "--log");
  EXPECT_FALSE(full.append("x"));
  EXPECT_EQ(full.failure(), "--log: No space left on device");
}

TEST(Digest, OfPiecesIsThatOfTheWhole) {
  DigestStream stream;
  stream.add("ab", 2);
  stream.add("", 0);
  stream.add("c", 1);
  EXPECT_EQ(stream.result(), digest_of("abc"));
}

TEST(Digest, TellsOneBitApart) {
  EXPECT_EQ(digest_of("abc"), digest_of("abc"));
  EXPECT_NE(digest_of("abc"), digest_of("abb"));
  EXPECT_EQ(to_string(digest_of("")).size(), 32u);
}

int policy_of_a_new_thread() {
  int policy = -1;
  std::thread([&policy] { policy = ::sched_getscheduler(0); }).join();
  return policy;
}

TEST(BackgroundThreads, AreThoseStartedMeanwhileAlone) {
  constexpr sched_param kNoPriority{};
  const int before = ::sched_getscheduler(0);
  if (before != SCHED_OTHER || ::sched_setscheduler(0, SCHED_OTHER, &kNoPriority) != 0) {
    GTEST_SKIP() << "the policy of this process is " << before << ", or may not be set";
  }
  {
    const BackgroundThreads from_here;
    EXPECT_EQ(policy_of_a_new_thread(), SCHED_BATCH);
  }
  EXPECT_EQ(policy_of_a_new_thread(), SCHED_OTHER);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

TEST(BackgroundThreads, LeaveAUsersChoiceAlone) {
  std::thread([] {
    constexpr sched_param kNoPriority{};
    if (::sched_setscheduler(0, SCHED_IDLE, &kNoPriority) != 0) {
      GTEST_SKIP() << "policies may not be set";
    }
    const BackgroundThreads from_here;
    EXPECT_EQ(policy_of_a_new_thread(), SCHED_IDLE);
  }).join();
}

TEST(CoreOffers, ComeOnceAMillisecond) {
  CoreOffers offers;
  EXPECT_TRUE(offers.is_due(Seconds(5)));
  offers.made(Seconds(5), Seconds(5));
  EXPECT_FALSE(offers.is_due(Seconds(5) + CoreOffers::kShortest * 0.9));
  EXPECT_TRUE(offers.is_due(Seconds(5) + CoreOffers::kShortest * 1.1));
}

TEST(CoreOffers, BecomeRareWhereOthersTakeTheCoreAndFrequentAgainAfterwards) {
  CoreOffers offers;
  Seconds now(5);
  // How long after an offer of `seconds` none is due.
  const auto pause_after = [&](Seconds seconds) {
    offers.made(now, now + seconds);
    now += seconds;
    const Seconds end = now;
    while (!offers.is_due(now)) now += Seconds(1e-4);
    return now - end;
  };
  EXPECT_NEAR(pause_after(Seconds(4e-3)).value, 2e-3, 2e-4);
  EXPECT_NEAR(pause_after(Seconds(4e-3)).value, 4e-3, 2e-4);
  for (int i = 0; i < 10; ++i) pause_after(Seconds(4e-3));
  EXPECT_NEAR(pause_after(Seconds(4e-3)).value, CoreOffers::kLongest.value, 2e-4);
  EXPECT_NEAR(pause_after(Seconds(1e-4)).value, CoreOffers::kLongest.value * 0.9, 2e-4);
  for (int i = 0; i < 40; ++i) pause_after(Seconds(1e-4));
  EXPECT_NEAR(pause_after(Seconds(1e-4)).value, CoreOffers::kShortest.value, 2e-4);
}

TEST(Numbers, AreAllOfATextAndTimesHaveAUnit) {
  EXPECT_EQ(as_number<int>("40"), 40);
  EXPECT_EQ(as_duration("10s"), Seconds(10));
  EXPECT_EQ(as_duration("500ms"), Seconds(0.5));
  EXPECT_EQ(as_duration("2m"), Seconds(120));
  for (const char* wrong : {"", "s", "10", "10h", "0s", "-1s", "nans", "infs", "1e9s", "1 s"}) {
    EXPECT_EQ(as_duration(wrong), std::nullopt) << wrong;
  }
}

TEST(Text, PartsAreThoseOfGetline) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split("", ','), Parts());
  EXPECT_EQ(split("a", ','), Parts({"a"}));
  EXPECT_EQ(split("a,,b,", ','), Parts({"a", "", "b"}));
  EXPECT_EQ(split(",", ','), Parts({""}));
}

TEST(Text, CharactersEndWhereTheNextOneBegins) {
  EXPECT_EQ(end_of_characters("µs and more", 2), 3U);
  EXPECT_EQ(end_of_characters("µs", 5), 3U);
  EXPECT_EQ(end_of_characters("µs", 0), 0U);
}

TEST(Units, PrintForPeople) {
  EXPECT_EQ(to_string(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(to_string(Seconds{0.0123}), "12.30 ms");
}

}  // namespace
}  // namespace autodist
