"""What the server of worker processes imports before it forks them. They inherit which packages own these modules."""

from rlrun.envs.saving import examination as examination
from rlrun.envs.saving import verdicts

verdicts.needs({})
