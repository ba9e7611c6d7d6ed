/* What a client has and has had: its places in the batch, and its last turn (turns.h).
 *
 * It is counted in two tables, at places that different bits of the client's number choose. The smaller count is never
 * too small, and too large only where others share both places.
 */
#ifndef BLINK_SCHEDULER_CLIENTS_H
#define BLINK_SCHEDULER_CLIENTS_H

namespace blink {}  // namespace blink

#endif
