// Package loopdev puts loop devices on files and takes them away, by ioctl(2)
// alone (loop(4)).
//
//	device, err := loopdev.Attach("/srv/disk.img", false)
//	...
//	on, err := loopdev.Of("/srv/disk.img") // after a restart
//	...
//	err = loopdev.Free(device)
//
// Of knows a device by the inode of its file, which holds in every mount
// namespace. Named knows it by the path that the file has or had, for files that
// are there no more, and for several files that lead to one device.
package loopdev
