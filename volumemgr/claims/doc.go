// Package claims finds the persistent volumes that pods' claims are bound to.
//
//	c, err := claims.New(claims.Config{Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Claims: c, ...})
//
// Both kinds of volumes come here: those that name a claim, and generic ephemeral
// ones, whose claim is named <pod>-<volume> and belongs to the pod (KEP-1698).
//
// With an API server, a controller binds claims and makes those of ephemeral
// volumes, and its word counts. Without one nobody does ([Config.Alone]): then a
// claim and a volume that name each other are bound, and an ephemeral volume whose
// template names a volume has that.
//
// # Faults
//
// It keeps nothing. An object that cannot be had is an error that names it and
// leaves mounted volumes as they are; the next sync of the pod asks again.
package claims
