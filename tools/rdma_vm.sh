#!/usr/bin/env bash
# Runs a command in a virtual machine that has an RDMA device: tools/rdma_vm.sh COMMAND [ARGUMENT...]
#
# The device is Soft RoCE (rxe0, at 10.77.0.1), which Linux makes on any network interface. The machine boots Debian's
# kernel over the files of this one, which it cannot change, so the command finds the same tree, with the same
# environment in .venv. The command can write results to build/rdma/results only; here they are in build/rdma/NUMBER/results.
# Processors are emulated: all works, 10 to 30 times slower. The status is the command's; 77 if this host cannot have such a
# machine. LIMIT is in seconds. MACHINE is its number: several may run at once.
set -euo pipefail
limit=${LIMIT:-1500}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$here/build/rdma
own=$work/${MACHINE:-0}
rm -rf "$own"
mkdir -p "$own/results" "$work/results"

exec 9>"$work/lock" # the first machine fetches what all need
flock 9
packages="qemu-system-x86 kmod cpio busybox-static rdma-core ibverbs-providers iproute2"
if ! dpkg -s $packages >/dev/null 2>&1; then
    apt-get -qq update && apt-get -qq -y install --no-install-recommends $packages >/dev/null || {
        echo "no RDMA machine: it needs Debian's packages $packages" >&2
        exit 77
    }
fi

# The kernel and its modules, beside those of the host.
if [ ! -e "$work/release" ]; then
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9]\S*\)/\1/p' | head -n 1)
    (cd "$work" && rm -rf root ./*.deb && apt-get -qq download "$package" 2>/dev/null && dpkg-deb -x ./*.deb root) || {
        echo "no RDMA machine: its kernel cannot be downloaded" >&2
        exit 77
    }
    rm "$work"/*.deb
    release=$(basename "$work"/root/lib/modules/*)
    depmod -b "$work/root" "$release"
    echo "$release" >"$work/release"
fi
flock -u 9
release=$(cat "$work/release")

# The first files of the machine: they mount the host's files and go on from there.
first=$own/first
mkdir -p "$first"/{bin,dev,proc,sys,host,changes,root,modules}
cp /bin/busybox "$first/bin/"
{
    echo '#!/bin/busybox sh'
    echo 'b=/bin/busybox; $b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs dev /dev'
    for module in virtio_pci 9pnet_virtio 9p overlay; do
        modprobe -d "$work/root" -S "$release" --show-depends "$module" | while read -r _ file _; do
            [ -e "$file" ] || continue
            cp -n "$file" "$first/modules/" || true
            echo "\$b insmod /modules/$(basename "$file") 2>/dev/null"
        done
    done
    echo '$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=500000,cache=loose host /host'
    echo '$b mount -t tmpfs changes /changes; $b mkdir /changes/upper /changes/work'
    echo '$b mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work overlay /root'
    echo '$b mount -t proc proc /root/proc; $b mount -t sysfs sysfs /root/sys; $b mount --move /dev /root/dev'
    echo '$b mkdir -p /root/dev/shm /root/dev/pts; $b mount -t tmpfs shm /root/dev/shm; $b mount -t tmpfs run /root/run'
    echo "\$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=500000 results /root$work/results"
    echo "exec \$b switch_root /root /bin/bash $own/guest.sh"
} >"$first/init"
chmod +x "$first/init"
(cd "$first" && find . | cpio -o -H newc 2>/dev/null | gzip -1 >"$own/first.gz")

{
    echo "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8"
    echo "ip link set lo up"
    echo "for module in crc32_generic crc32c_generic dummy veth sch_netem rdma_rxe ib_uverbs rdma_ucm; do"
    echo "    modprobe -d $work/root -S $release \$module"
    echo "done"
    echo "ip link add roce type dummy; ip addr add 10.77.0.1/24 dev roce; ip link set roce up"
    echo "rdma link add rxe0 type rxe netdev roce"
    # The environment that decides about libfabric goes along.
    export -p | grep -E 'declare -x (AIOFABRIC_|FI_)' || true
    echo "export RDMA_HOST=10.77.0.1"
    echo "cd $here; echo; $(printf '%q ' "$@")"
    echo 'echo "the command ended with $?"'
    echo 'sync; echo 1 >/proc/sys/kernel/sysrq; echo o >/proc/sysrq-trigger; sleep 30'
} >"$own/guest.sh"

timeout --foreground "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 4G -nographic -no-reboot -nodefaults \
    -serial stdio -kernel "$work"/root/boot/vmlinuz-* -initrd "$own/first.gz" \
    -append "console=ttyS0 quiet edd=off panic=-1 rdinit=/init" \
    -fsdev local,id=files,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=files,mount_tag=host \
    -fsdev local,id=results,path="$own/results",security_model=none,multidevs=remap \
    -device virtio-9p-pci,fsdev=results,mount_tag=results </dev/null 2>&1 |
    sed -u 's/\r//g; /SeaBIOS/d; /Booting from/d; /^\[ *[0-9.]*\] /d' | tee "$own/log"
status=$(sed -n 's/^the command ended with \([0-9]*\)$/\1/p' "$own/log" | tail -n 1)
exit "${status:-124}"
