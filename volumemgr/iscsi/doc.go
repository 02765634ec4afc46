// Package iscsi makes volumes of disks that iSCSI targets have, by iscsiadm(8).
//
//	p, err := iscsi.New(iscsi.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin, DevicePlugin and BlockPlugin
//
// A disk is found by its link in /dev/disk/by-path after the node has logged in to
// the target; where several portals lead to it, multipathd's disk on top is what
// pods get. A session that was there before any volume wanted it stays; others end
// with the last volume on a disk of the target.
//
// # Secrets
//
// Those of CHAP are written into the files of iscsiadm's database, which only root
// reads: a command line is seen by every process of the machine. No error and no
// record has them.
//
// See package lun for what is the same for all networks, faults among that.
package iscsi
