// The page's parts, from the files in assets/ and vendor/, which the build puts into the library.

#pragma once

namespace autodist::report {

extern const char kPageTemplate[];  // with {{title}}, {{style}}, {{data}}, {{charts}}, {{script}}
extern const char kPageStyle[];
extern const char kPageScript[];
extern const char kChartStyle[];  // uPlot's
extern const char kChartScript[];

}  // namespace autodist::report
