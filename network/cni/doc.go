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
// Files that end in .conf, .conflist or .json are taken in the order of their
// names, and the first valid one is used. It is valid if it parses, its name is
// legal, the executable of each of its plugins is there, and all of them speak
// one of its versions, 0.1.0 to 1.1.0. Those before it are named in the log, once.
//
// A changed file is in force for new attachments within 200 ms, of which 100 ms
// are waited for more changes; attachments that exist are taken back with the
// configuration that made them. While a file that is in use cannot be read or
// parsed, since it is being written, what it said last is used.
//
// # What plugins may do
//
// A plugin may hang, flood its output, die, or leave children that keep its
// pipes open: it costs its own attachment no more than the deadline of the verb,
// and no other one anything. At the deadline its process group is killed. What
// left the group, as a daemon does, lives on, and keeps the guard of
// [network.Plugin] locked if it did not close it. A process that cannot be
// killed, as one that waits for a dead disk, keeps the next call for the same
// attachment waiting and nothing else. What plugins answer is bounded, checked
// for the addresses that it names, and converted by libcni.
//
// # What is kept
//
// The configuration and the arguments of an attachment are in the record that
// [Plugin.Plan] returns, and its result in [network.Result].Extra. The
// cache that libcni keeps in [Config].CacheDir is written anew from them when a
// crash damaged it.
//
// Tier: beta.
package cni
