// Package tokens keeps service account tokens until they have to be renewed.
//
//	c, err := tokens.New(tokens.Config{Requester: apiServer})
//	if err != nil {
//		return err
//	}
//	t, err := c.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, spec)
//	...
//	// t.Value is good now; ask again after t.Refresh
//	c.Forget(pod.UID) // when the pod's volumes are gone
//
// A token is asked for anew in the last fifth of its life and after a day,
// whichever comes first, with some seconds of chance between many pods
// ([RequiresRefresh]). Equal requests share a token, and a request that is under
// way: same account, audiences in order, duration and bound object.
//
// # Faults
//
// A renewal that fails gives the old token as long as it is valid. Tokens that
// have expired are dropped at the next call after a minute. The wall clock
// decides, since expiry is told in it. All methods may be called from any
// goroutine.
package tokens
