// Package lun makes volumes of disks that a network has: the part that is the
// same for each kind of network. Packages iscsi and fc know theirs.
//
// A disk is attached once for the node, and found by what it is, never by a name
// that the kernel gave it: after a restart another disk may have that. With
// volumeMode Filesystem it is formatted if it is empty, checked, mounted below
// Root/plugins and bound from there into pods.
//
// # Faults
//
// One record for a disk, without any secret, says what was attached; it is written
// before that happens, and removed after the disk is gone. One call at a time works
// on a disk. A device is not taken away while it is mounted elsewhere.
package lun
