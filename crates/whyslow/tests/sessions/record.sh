#!/bin/bash
# Makes the recordings of the sessions anew, in a guest, where nothing else is: as root of the repository
#   lab boot 6.12 --vcpus 4 -- bash $PWD/crates/whyslow/tests/sessions/record.sh $PWD/PATH/TO/whyslow
# They come out on the console, in base64: `base64 -d`, `zstd -d`, `zstd -19`. A recording may have 100 kB: of `pipeline` the table
# `gaps` is left out, which what is shown of it does not need.
set -u
hostname web-1
cp "$1" /tmp/whyslow
mkdir /tmp/bin
cp /usr/bin/{sort,gzip,seq,sh} /tmp/bin/
cp /usr/bin/base64 /tmp/bin/render
cp /usr/bin/wc /tmp/bin/checkout
export PATH=/tmp/bin:/usr/sbin:/usr/bin
cd /tmp

# A service with a quota, and another one that waits for what it makes.
slice=/sys/fs/cgroup/system.slice
mkdir -p $slice
echo "+cpu +memory +io +pids" >$slice/cgroup.subtree_control
mkdir $slice/render.service $slice/checkout.service
echo "20000 100000" >$slice/render.service/cpu.max
mkfifo /tmp/queue
sh -c "echo \$\$ >$slice/checkout.service/cgroup.procs; exec checkout -l </tmp/queue >/dev/null" &
sh -c "echo \$\$ >$slice/render.service/cgroup.procs; exec render /dev/zero >/tmp/queue" &
sleep 5
/tmp/whyslow record --for 5s -o quota.why
/tmp/whyslow report quota.why
kill %1 %2
wait

# Once before, so that all is read that is executed.
seq 1 1000 | sort -rn | gzip >numbers.gz
sleep 2
/tmp/whyslow run -o pipeline.why -- sh -c 'seq 1 200000 | sort -rn | gzip > numbers.gz'
sleep 2
/tmp/whyslow cpu --for 5s -o cpus.why
for name in quota pipeline cpus; do
    echo "BEGIN $name"
    base64 -w 76 $name.why
    echo "END $name"
done
