// Package atomicdir publishes a set of files in a directory so that readers see all of the old
// set or all of the new one.
//
//	w, err := atomicdir.New(atomicdir.Config{Dir: "/run/app/config"})
//	if err != nil {
//		return err
//	}
//	changed, err := w.Write(atomicdir.Payload{
//		"app.yaml":    {Data: conf, Mode: 0o644},
//		"tls/key.pem": {Data: key, Mode: 0o400},
//	})
//
// The layout is the one that readers of Kubernetes volumes know:
//
//	app.yaml   -> ..data/app.yaml
//	tls        -> ..data/tls
//	..data     -> ..2026_11_21_14_30_00.1804289383
//	..2026_11_21_14_30_00.1804289383/app.yaml, tls/key.pem
//
// A change writes a new directory beside the old one and renames a symbolic link over ..data; the
// rename publishes the set. To read several files of one set, first open ..data, then the files
// below it. Open files do not change.
//
// # What counts as a change
//
// A set differs by names, contents, permission bits, owner or group. An equal set is not written
// again, and ..data keeps its target.
//
// # Faults
//
// [Writer.Write] may fail, or its process may end, at any step: ..data points to the whole old
// set or the whole new one. The next Write repairs the rest: missing links, links of removed
// names, and directories that are not published. A failed Write never removes published files.
// With Config.Sync a set also survives a power failure.
//
// All accesses are relative to the directory's descriptor, so that a symbolic link cannot lead
// out of it. The directory must have no other writer. A Writer does one Write at a time.
package atomicdir
