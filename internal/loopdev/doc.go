// Package loopdev attaches loop devices to files and detaches them, with ioctl(2)
// only (loop(4)).
//
//	device, err := loopdev.Attach("/srv/disk.img", false)
//	...
//	on, err := loopdev.Of("/srv/disk.img") // after a restart
//	...
//	err = loopdev.Free(device)
//
// Of finds a device by the inode of its file, which is the same in every mount
// namespace. Named finds it by the path of its file at the time of Attach; that is
// for removed files, and for several paths of one file.
package loopdev
