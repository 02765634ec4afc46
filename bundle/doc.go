// Package bundle runs the pods of one OCI artifact: a bundle has all manifests that a node should
// run, and takes effect as a whole or not at all.
//
// A bundle comes from a registry, whose tag a [Manager] polls, or from a file ([Open]) that is
// passed to [Manager.Apply]. The Manager is a podmgr.Source:
//
//	m, err := bundle.New(bundle.Config{NodeName: "edge-1", Node: node, Store: store, Ref: "registry.example/fleet/shop:prod"})
//	...
//	agentConfig.Sources = append(agentConfig.Sources, m)
//
// # How a bundle takes effect
//
// The artifact is downloaded and compared with its digest, and all its manifests are validated as
// those of a manifests directory. Then the images are pulled, while the pods of the bundle before
// keep running. Then the pods of the new bundle replace them: that is its trial. The trial is over
// when all pods are Ready or have succeeded, and have stayed so for [Rollout].ReadyFor. If that
// takes longer than [Rollout].HealthyWithin, or a pod fails for good, the last good bundle comes
// back, and the digest is not tried again until the tag has another one or Apply is called. A pod
// whose manifest and file name are the same in both bundles keeps running.
//
// # State
//
// [Record] is the state, and decides by pure functions. The Manager stores it in a
// checkpoint, and the artifacts beside it. A crash at any time leaves the Record from before or
// after a decision, with the artifacts that it names: the next start runs the pods of one bundle,
// and continues. A trial that is interrupted begins again, at most [MaxTrials] times, since the
// bundle may be what ends the machine. No clock has to be right: a trial measures its own time.
//
// # Why a source
//
// A directory of manifests that is switched would be read file by file while it is switched, keeps
// the last good version of each file and not of all, and there is one such source already. A
// podmgr.Source delivers all pods in one call, which is what a bundle needs.
//
// # What is refused
//
// Registries, archives and manifests are not trusted. The sizes and numbers of everything are
// limited, archives have plain files only, and nothing of them is used as a path. A bundle has no
// Secrets: pods refer to those in the manifests of the node. HTTP without TLS is for registries on
// the machine itself.
//
// Git, and images inside of bundles, are not supported.
//
// Tier: beta.
package bundle
