// Package atomicdir publishes a set of files in a directory so that readers see
// all of the old set or all of the new one.
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
// A change writes a new directory beside the old one and renames a symbolic
// link over ..data; that rename is the change. A reader who wants several files
// of one set opens ..data first and the files below it. Files that are open
// stay as they were.
//
// # What counts as a change
//
// Names, contents, permission bits, owner and group. A set that is what the
// directory has already is not written again, and ..data keeps its target.
//
// # Faults
//
// [Writer.Write] may fail or its process may die at any step: ..data leads to
// the whole old set or the whole new one, and the next Write puts right what is
// missing or left over: links of the set, links of names that are gone,
// directories that were never published or not yet removed. A Write that fails
// never removes what readers have. With Config.Sync a set also survives a power
// cut.
//
// The directory is worked on through its descriptor: symbolic links in it lead
// nowhere else. It must have no other writer, and a Writer does one Write at a
// time.
package atomicdir
