// Package content makes the volumes that the node writes files into: configMap,
// secret, downwardAPI and projected.
//
//	cfg := content.Config{Mounter: &mount.Kernel{}, Source: objects}
//	p, err := content.New(content.ConfigMap, cfg)
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin and a volumemgr.Refresher
//
// Objects come through [Source], tokens, trust bundles and pod certificates
// through interfaces of their own that may be left out. The files are published
// by package atomicdir, so that all of them change at once; those of secrets,
// downwardAPI and projected volumes are in memory.
//
// # When nothing changed
//
// A volume that is set up again is compared with what was written last by the
// versions that the source gives its objects, without a look at the disk. Only
// what has a new version, or none, is compared file by file; only a difference
// is written.
//
// # Faults
//
// Everything is fetched and checked before the disk is touched: with an error
// the files stay as they are. An optional object may be missing, but an answer
// that is no answer is an error. All mistakes of a projected volume are told at
// once. A set-up that fails takes down what it made itself, and nothing that was
// there before: a container that uses the volume keeps what it has.
//
// Tier: beta.
package content
