#include "autodist/job/place.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "tests/outcome_of.h"

namespace autodist::job {
namespace {

Environment of(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::string message_for(const std::map<std::string, std::string>& variables) {
  return testing_jobs::refusal([&] { job_from_environment(of(variables)); });
}

// A descriptor from which `text` can be read.
std::string descriptor_with(const std::string& text) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  return std::to_string(ends[0]);
}

TEST(Job, ARankLearnsWhichMachinesAreLost) {
  JobPlace place;
  place.key = make_job_key();
  EXPECT_TRUE(lost_machines(environment_of(place_variables(place, 3))).empty());
  place.lost = {"10.0.0.2", "fd09::3"};
  EXPECT_EQ(lost_machines(environment_of(place_variables(place, 3))), place.lost);
}

TEST(Job, ARankLearnsThatItStandsBy) {
  JobPlace place;
  place.key = make_job_key();
  EXPECT_EQ(standby_number(environment_of(place_variables(place, 3))), 0U);
  place.standby = 7;
  EXPECT_EQ(standby_number(environment_of(place_variables(place, 3))), 7U);
  EXPECT_TRUE(names_a_place("AUTODIST_STANDBY=7"));
}

TEST(Job, WithoutARankThisProcessIsTheChief) { EXPECT_FALSE(job_from_environment(of({}))); }

TEST(Job, ARankReadsItsPlaceAndItsKey) {
  const std::string key = make_job_key();
  const auto place = job_from_environment(of({{"AUTODIST_RANK", "2"},
                                              {"AUTODIST_SIZE", "3"},
                                              {"AUTODIST_CHIEF", "::1:4000"},
                                              {"AUTODIST_KEY_FD", descriptor_with(key)}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 2u);
  EXPECT_EQ(place->size, 3u);
  EXPECT_EQ(place->chief_address, "::1");
  EXPECT_EQ(place->chief_port, 4000);
  EXPECT_EQ(place->own_address, "::1");
  EXPECT_EQ(place->key, key);
}

// A pipe can be read once, and whoever opens something then must not lose it to the second.
TEST(Job, ASecondJobOfAProcessHasTheSameKeyAndClosesNothing) {
  const std::string key = make_job_key();
  const Environment environment = of({{"AUTODIST_RANK", "1"},
                                      {"AUTODIST_SIZE", "2"},
                                      {"AUTODIST_CHIEF", "[::1]:4000"},
                                      {"AUTODIST_KEY_FD", descriptor_with(key)}});
  EXPECT_EQ(job_from_environment(environment)->key, key);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(job_from_environment(environment)->key, key);
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
}

TEST(Job, AnAddressOfIPv6StandsInBrackets) {
  const std::string key = descriptor_with(make_job_key());
  const auto place = job_from_environment(of({{"AUTODIST_RANK", "1"},
                                              {"AUTODIST_SIZE", "2"},
                                              {"AUTODIST_CHIEF", "[::1]:4000"},
                                              {"AUTODIST_KEY_FD", key}}));
  EXPECT_EQ(place->chief_address, "::1");
  EXPECT_EQ(place->chief_port, 4000);
  EXPECT_EQ(place_variables(*place, 3)[2], "AUTODIST_CHIEF=[::1]:4000");
  for (const char* text : {"[::1]", "[::1:4000", "[]:4000", ":4000", "host:"}) {
    const std::string message =
        message_for({{"AUTODIST_RANK", "1"}, {"AUTODIST_SIZE", "2"}, {"AUTODIST_CHIEF", text}});
    EXPECT_NE(message.find("[ADDRESS]:PORT"), std::string::npos) << text;
  }
}

TEST(Job, NamesTheVariableThatIsWrong) {
  EXPECT_NE(message_for({{"AUTODIST_RANK", "0"}}).find("AUTODIST_SIZE is not"), std::string::npos);
  EXPECT_NE(message_for({{"AUTODIST_RANK", "x"}, {"AUTODIST_SIZE", "2"}}).find("AUTODIST_RANK='x'"),
            std::string::npos);
  EXPECT_NE(message_for({{"AUTODIST_RANK", "2"}, {"AUTODIST_SIZE", "2"}}).find("count from 0"),
            std::string::npos);
  EXPECT_NE(
      message_for({{"AUTODIST_RANK", "1"}, {"AUTODIST_SIZE", "2"}, {"AUTODIST_CHIEF", "host"}})
          .find("ADDRESS:PORT"),
      std::string::npos);
}

TEST(Job, ATruncatedKeyIsRefused) {
  EXPECT_NE(message_for({{"AUTODIST_RANK", "1"},
                         {"AUTODIST_SIZE", "2"},
                         {"AUTODIST_CHIEF", "127.0.0.1:1"},
                         {"AUTODIST_KEY_FD", descriptor_with("abc")}})
                .find("got 3 of 64"),
            std::string::npos);
}

TEST(Job, KeysDiffer) {
  EXPECT_EQ(make_job_key().size(), 64u);
  EXPECT_NE(make_job_key(), make_job_key());
}

}  // namespace
}  // namespace autodist::job
