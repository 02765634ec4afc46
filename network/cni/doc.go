// Package cni gives pods the network of the machine's CNI plugins: the
// executables below /opt/cni/bin, in the order of the first valid configuration
// of /etc/cni/net.d, as container runtimes run them.
//
// A [Plugin] is a [network.Plugin]. It needs Linux, and root for most plugins:
//
//	p, err := cni.New(cni.Config{Log: log})
//	...
//	net, err := network.New(network.Config{Plugins: []network.Plugin{p}})
//
// # Configurations
//
// Files that end in .conf, .conflist or .json are read in the order of their names, and
// the first valid one is used. It is valid if it parses, its name is legal, the
// executable of each of its plugins exists, and all of them support one of its
// versions, 0.1.0 to 1.1.0. Invalid files before it are logged once.
//
// A changed file is used for new attachments within 200 ms, of which 100 ms are a
// wait for more changes. Existing attachments are deleted with the configuration
// that created them. While the file in use cannot be read or parsed, because it is
// being written, its last content is used.
//
// # What plugins may do
//
// A plugin may hang, flood its output, crash, or leave children that keep its pipes
// open: its own attachment waits until the deadline of the verb at most, and others are
// not affected. At the deadline its process group is killed. A process that left the
// group, such as a daemon, continues to run. If it has not closed the guard of
// [network.Plugin], the guard stays locked. A process that cannot be killed, for
// example one that waits for a dead disk, only delays the next call for the same
// attachment. Answers of plugins are limited in size, their addresses are checked, and
// libcni converts them.
//
// # Host ports
//
// An attachment with a host port that a process of the node listens on is refused before
// any plugin runs, as is one with a port of [Config].Reserved. The ports of attachments are
// held by sockets that receive nothing, so that no process can listen on them, until the
// attachment or [Plugin.Run] ends.
//
// # State
//
// The configuration and the arguments of an attachment are in the record that
// [Plugin.Plan] returns, and its result in [network.Result].Extra. If a crash damaged
// an entry of libcni's cache in [Config].CacheDir, the entry is written again from
// these two.
//
// Tier: beta.
package cni
