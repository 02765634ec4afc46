// Package controlplane runs a Kubernetes control plane for tests: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, as processes that
// can be killed, frozen and started again one by one.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{Program: "build/bin/cluster", Dir: dir})
//	if err != nil {
//		return err
//	}
//	defer cp.Stop()
//	out, err := cp.Kubectl(ctx, "get", "nodes").CombinedOutput()
//
// All files are below Options.Dir: keys, etcd's data, and the logs of the programs. The programs
// come from e2e/cmd/cluster.
package controlplane
