#!/usr/bin/env bash
# Runs in the guest: connects to a target, and has fio replay accesses to its first namespace.
#
#     replay_guest.sh ADDRESS PORT NQN IOLOG HOLD
#
# IOLOG is a trace of fio, version 3, of the device @DEVICE@. HOLD is a port of the same address:
# fio begins when a line came from there, and when fio is done it is told, and waited for to close.
set -euo pipefail
address=$1 port=$2 nqn=$3 iolog=$4 hold=$5

modprobe nvme-tcp
nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -i 4 -Q 128 >/dev/null
# Not the hidden disk of a single path (nvme0c0n1), nor that of the extension namespace.
find_disk() {
  local root
  for root in /sys/block/nvme[0-9]n*; do
    if [[ -e $root/nsid && $(<"$root/nsid") == 1 && $(<"$root/size") -gt 0 ]]; then
      echo "/dev/${root##*/}"
      return
    fi
  done
}
for _ in $(seq 100); do
  device=$(find_disk)
  if [[ $device ]]; then break; fi
  sleep 0.1
done
[[ -b $device ]]
sed "s|@DEVICE@|$device|" "$iolog" >/run/iolog

exec 9<>"/dev/tcp/$address/$hold"
read -r _ <&9
fio --name=replay --read_iolog=/run/iolog --direct=1 --ioengine=libaio --iodepth=64 >/run/fio.log ||
  { cat /run/fio.log; exit 1; }
echo done >&9
read -r _ <&9 || true
nvme disconnect -n "$nqn" >/dev/null
