// Command csidriver is a CSI driver for trying out a node agent. Its volumes are
// directories, or disk images with loop devices, below one directory of the node.
//
//	csidriver --name disk.example.com --state /var/lib/csidriver
//
// The Controller and the Node service are both at DIR/NAME/csi.sock. The driver
// registers itself with the agent, so that no other program is needed on the node. It
// needs root, and mkfs.ext4 for file systems on disk images.
//
// # Volumes
//
// A volume is a disk image in three cases; otherwise it is a directory, whose size
// is not enforced:
//
//   - the parameter kind of the storage class is "disk"
//   - the volume is requested as a block device
//   - the request names a file system
//
// Snapshots and clones are copies. The file system of a mounted disk is frozen
// while it is copied.
//
// Inline volumes live as long as their pod; volumeAttributes may have kind and
// size. A PersistentVolume from a manifest has no volume yet: its volumeAttributes
// describe the volume, which the driver creates when it is first staged:
//
//	csi:
//	  driver: disk.example.com
//	  volumeHandle: scratch
//	  volumeAttributes: {create: disk, size: 64Mi}
//
// With --attach, the driver requires that volumes are attached before they are
// staged. While the file of --sick exists, volumes are not healthy.
//
// # Faults
//
// Each volume has one record of its data and its mounts. The driver writes and
// syncs the record before it mounts, and after it has unmounted. The driver may be
// killed at any time, and the node may lose its power: a repeated call completes an
// unfinished one. The driver unmounts only its own mounts. A second call for the
// same volume at the same time returns Aborted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/validation"
)

func main() {
	d := driver{}
	hostname, _ := os.Hostname()
	flag.StringVar(&d.name, "name", "disk.example.com", "`name` of the driver")
	flag.StringVar(&d.node, "node", hostname, "`name` of the node")
	flag.StringVar(&d.state, "state", "/var/lib/csidriver", "`directory` of volumes, snapshots and what is known of them")
	flag.StringVar(&d.registry, "registry", "/var/lib/kubelet/plugins_registry", "`directory` where the agent looks for plugins; none if empty")
	flag.StringVar(&d.dir, "dir", "/var/lib/kubelet/plugins", "`directory` for the driver's own directory with its socket")
	flag.Int64Var(&d.capacity, "capacity", 0, "`bytes` of all volumes together; those of the file system if 0")
	flag.Int64Var(&d.maxVolumes, "max-volumes", 0, "`number` of volumes that the node takes; no limit if 0")
	flag.BoolVar(&d.attach, "attach", false, "volumes have to be attached")
	flag.BoolVar(&d.mountGroup, "mount-group", true, "the driver gives files to a pod's fsGroup, not the agent")
	flag.StringVar(&d.sick, "sick", "", "`file` that spoils the condition of all volumes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(d.check(), extra(flag.Args())); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(2)
	}
	if err := d.run(ctx, func(what string) { fmt.Println(what) }); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

// extra returns an error for unexpected arguments.
func extra(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("arguments %q: want only flags", args)
}

// check returns an error for invalid flags, and creates the directories.
func (d *driver) check() error {
	var errs []error
	if problems := validation.IsDNS1123Subdomain(d.name); len(problems) > 0 || len(d.name) > 63 {
		errs = append(errs, fmt.Errorf("--name %q: want a DNS subdomain of at most 63 characters", d.name))
	}
	if d.node == "" || len(d.node) > maxField || len(validation.IsValidLabelValue(d.node)) > 0 {
		errs = append(errs, fmt.Errorf("--node %q: want at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", d.node))
	}
	if d.capacity < 0 {
		errs = append(errs, fmt.Errorf("--capacity %d: want 0 or more", d.capacity))
	}
	if d.maxVolumes < 0 {
		errs = append(errs, fmt.Errorf("--max-volumes %d: want 0 or more", d.maxVolumes))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, f := range []struct {
		flag string
		dir  *string
		perm os.FileMode
	}{{"--state", &d.state, 0o700}, {"--registry", &d.registry, 0o755}, {"--dir", &d.dir, 0o755}} {
		if f.flag == "--registry" && *f.dir == "" {
			continue
		}
		abs, err := filepath.Abs(*f.dir)
		if err == nil {
			err = os.MkdirAll(abs, f.perm)
		}
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs) // other processes use the paths, and the mount table has them
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", f.flag, *f.dir, err))
			continue
		}
		*f.dir = abs
	}
	return errors.Join(errs...)
}

// label returns the label key of the driver's topology.
func (d *driver) label() string { return "topology." + strings.ToLower(d.name) + "/node" }
