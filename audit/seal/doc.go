// Package seal makes the audit log something that can be proved: a [Sealer] puts
// a signature over its rows, in a chain of hashes by their numbers, [Export]
// writes both to a file, and [Check] says offline, with the public key alone,
// which row of such a file was changed, removed or added.
//
// What was sealed is proved as long as the private key is nobody's who may write
// to the database. What it does not show is that the newest seals are missing:
// whoever keeps the hash of one elsewhere ([CheckOptions.Holds]) sees that, too.
package seal
