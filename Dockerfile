# AutoDist on CPUs. `docker build -t autodist .` makes the runtime image; `--target build` stops at
# the image with compilers and sources. docs/containers.md says how several containers train.

FROM debian:12 AS build
WORKDIR /autodist
# The packages first: they change less often than the sources.
COPY tools/install-packages tools/install-packages
RUN tools/install-packages
COPY . .
RUN make programs

FROM debian:12
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      libtorch1.13 libopenblas0-pthread libzmq5 libprotobuf32 libyaml-cpp0.7 libfmt9 libxxhash0 libzstd1 \
      zlib1g openssh-client openssh-server \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
COPY --from=build /autodist/build/dev/bin/autodist /autodist/build/dev/bin/autodist-torch /usr/local/bin/
COPY --from=build /autodist/data/graphs /usr/local/share/autodist/graphs
COPY --from=build /autodist/data/clusters /usr/local/share/autodist/clusters
WORKDIR /job
ENTRYPOINT ["autodist"]
CMD ["--help"]
