// Package loopdev attaches loop devices to files and detaches them, with ioctl(2)
// only (loop(4)).
//
//	device, err := loopdev.Attach("/srv/disk.img", false)
//	...
//	on, err := loopdev.Of("/srv/disk.img") // after a restart
//	...
//	err = loopdev.Free(device)
//
// Of finds a loop device by the inode of its file, which is the same in every mount
// namespace. Named finds the device by the path that was given to Attach. Use Named for
// files that have been removed, and for files with several paths.
package loopdev
